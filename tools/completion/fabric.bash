# bash completion for fabric. Source it, or install it as share/bash-completion/completions/fabric.
_fabric() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} word i
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "run consolidate doctor help --version --help" -- "$cur")
        return
    fi
    for ((i = 2; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == -- ]] && { mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return; }
    done
    case $command in
    run) ;;
    consolidate)
        [[ $cur == -* ]] && mapfile -t COMPREPLY < <(compgen -W "--output_file --help" -- "$cur") ||
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return ;;
    help) mapfile -t COMPREPLY < <(compgen -W "run consolidate doctor" -- "$cur"); return ;;
    *) mapfile -t COMPREPLY < <(compgen -W "--help" -- "$cur"); return ;;
    esac
    case $prev in
    --accelerator) word="cpu gpu cuda mps tpu auto" ;;
    --strategy) word="ddp ddp_find_unused_parameters_true deepspeed deepspeed_stage_1 deepspeed_stage_2 deepspeed_stage_3 dp fsdp" ;;
    --precision) word="transformer-engine transformer-engine-float16 16-true 16-mixed bf16-true bf16-mixed 32-true 64-true 64 32 16 bf16" ;;
    --devices) word="auto -1 1 2 4 8" ;;
    --num-nodes | --node-rank | --main-port | --max-restarts | --main-address) return ;;
    --log-dir) mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
    *)
        if [[ $cur == -* ]]; then
            word="--accelerator --strategy --devices --num-nodes --node-rank --main-address --main-port --precision --max-restarts --log-dir --tee --help"
        else
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
        fi ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$word" -- "$cur")
}
complete -o filenames -F _fabric fabric
