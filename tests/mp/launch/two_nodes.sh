#!/bin/sh
# Two machines, for real as far as the network goes: two network namespaces joined by a veth pair, `fabric run --num-nodes 2` in each.
# Arguments: fabric, program and its arguments. Exits with 77 (skipped) where namespaces cannot be made.
set -u
fabric=$1
shift
a=cfab-a-$$ b=cfab-b-$$ folder=$(mktemp -d)
clean_up() {
    ip netns del "$a" 2>/dev/null
    ip netns del "$b" 2>/dev/null
    rm -rf "$folder"
}
trap clean_up EXIT
command -v ip >/dev/null || { echo "skipped: no ip command"; exit 77; }
{ ip netns add "$a" && ip netns add "$b" && ip -n "$a" link add vethA type veth peer name vethB netns "$b"; } 2>"$folder/why" ||
    { echo "skipped: network namespaces cannot be made: $(head -1 "$folder/why")"; exit 77; }
ip -n "$a" addr add 10.213.7.1/24 dev vethA && ip -n "$b" addr add 10.213.7.2/24 dev vethB || exit 1
for end in "$a vethA" "$b vethB"; do
    ip -n "${end% *}" link set lo up
    ip -n "${end% *}" link set "${end#* }" up
done
node() { # namespace, node rank
    namespace=$1 rank=$2
    shift 2
    timeout 60 ip netns exec "$namespace" "$fabric" run --num-nodes=2 --node-rank="$rank" --main-address=10.213.7.1 --main-port=29533 \
        --devices=2 "$@" >"$folder/out$rank" 2>&1
}
unset GLOO_SOCKET_IFNAME # each node finds its own interface
node "$b" 1 "$@" &
other=$!
node "$a" 0 "$@"
first=$?
wait $other
second=$?
cat "$folder/out0" "$folder/out1"
[ $first -eq 0 ] && [ $second -eq 0 ] || { echo "node 0 ended with $first, node 1 with $second, expected 0 and 0"; exit 1; }
