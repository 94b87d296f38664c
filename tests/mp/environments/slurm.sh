#!/bin/sh
# A SLURM cluster of this one machine, started here and stopped again, runs the program through srun: PROGRAM.
# Skipped (77), with its reason, where SLURM is not installed, where we are not root, or where its daemons do not come up.
set -u
unset CFABRIC_ON_ERROR # the messages are looked at
program=$1
skip() { echo "skipped: $*"; exit 77; }
for tool in slurmctld slurmd srun scontrol; do command -v $tool >/dev/null || skip "no $tool"; done
[ "$(id -u)" = 0 ] || skip "slurmd wants to be root"

folder=$(mktemp -d)
control= node=
stop() {
    [ -n "$node" ] && kill "$node" 2>/dev/null
    [ -n "$control" ] && kill "$control" 2>/dev/null
    wait 2>/dev/null
    rm -rf "$folder"
}
trap stop EXIT
trap 'exit 1' INT TERM

free_port() { # a port that nobody listens on, between $1 and $1 + 999
    port=$(($1 + $$ % 1000))
    while ss -ltn 2>/dev/null | grep -q ":$port "; do port=$((port + 1)); done
    echo "$port"
}
host=$(hostname -s)
cpus=$(nproc)
[ "$cpus" -ge 2 ] || cpus=2
cat > "$folder/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free_port 26000)
SlurmdPort=$(free_port 27000)
SlurmUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/linear
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmctldTimeout=30
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cpus State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES MaxTime=5 State=UP OverSubscribe=FORCE:4
CONF
mkdir "$folder/state" "$folder/spool"
export SLURM_CONF="$folder/slurm.conf"
slurmctld -D > "$folder/slurmctld.out" 2>&1 &
control=$!
slurmd -D -N "$host" > "$folder/slurmd.out" 2>&1 &
node=$!
ready=
for _ in $(seq 40); do
    state=$(timeout 5 scontrol show node "$host" 2>/dev/null | sed -n 's/.*State=\([A-Z]*\).*/\1/p')
    [ "$state" = IDLE ] && ready=yes && break
    kill -0 "$control" 2>/dev/null && kill -0 "$node" 2>/dev/null || break
    sleep 0.5
done
[ -n "$ready" ] || { tail -n 5 "$folder"/slurm*.log "$folder"/slurm*.out; skip "SLURM's daemons did not come up here"; }

fail() { echo "failed: $*"; cat "$folder/out"; exit 1; }

timeout 60 srun --ntasks-per-node=2 --ntasks=2 --nodes=1 "$program" plain > "$folder/out" 2>&1 || fail "two tasks did not run"
for rank in 0 1; do grep -q "rank $rank of 2: total 3" "$folder/out" || fail "rank $rank is missing"; done

timeout 60 srun --ntasks-per-node=1 --ntasks=1 --nodes=1 "$program" plain > "$folder/out" 2>&1 && fail "one task passed for two devices"
grep -q -e "--ntasks-per-node=1.*Set devices=1" "$folder/out" || fail "the mismatch is not explained"

timeout 60 srun --ntasks=2 --nodes=1 "$program" plain > "$folder/out" 2>&1 && fail "tasks without a count per node passed"
grep -q "Use .--ntasks-per-node=2. instead" "$folder/out" || fail "the missing count per node is not explained"
echo "srun: two ranks met, two wrong job settings were explained"
