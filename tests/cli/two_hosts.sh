#!/usr/bin/env bash
# two_hosts.sh URXE COMMAND...: URXE bench --server on one host, and COMMAND there and then on another: two network namespaces with a
# cable between them, which go when this ends. Exit code 77: none can be made here.
set -euo pipefail
if [ -z "${URXE_TWO_HOSTS:-}" ]; then
    unshare --user --map-root-user --net true 2>/dev/null || exit 77
    URXE_TWO_HOSTS=1 exec unshare --user --map-root-user --net "$0" "$@"
fi
urxe=$1
shift
unshare --net sleep 300 &
other=$!
trap 'kill $other ${server:-} 2>/dev/null || true' EXIT
while [ "$(readlink "/proc/$other/ns/net")" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
ip link add name here type veth peer name there netns "$other" 2>/dev/null || exit 77
ip address add 10.19.0.1/24 dev here && ip link set here up
there=(nsenter --target "$other" --net)
"${there[@]}" ip address add 10.19.0.2/24 dev there
"${there[@]}" ip link set there up
exec {said}< <(exec "${there[@]}" "$urxe" bench --server 10.19.0.2)
server=$!
read -r -u "$said" line
[ "$line" = "urxe: waiting for the client on port 18515" ]
"$urxe" "$@" --connect 10.19.0.2
