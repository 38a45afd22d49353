#!/bin/bash
# Become a node: node_up.sh DIRECTORY PLUGINS. Runs as the first process of namespaces of its own, and reaps.
set -e
directory=$1 plugins=$2
mount -t proc proc /proc
ip link set lo up
# Namespaces of the machine's other programs: covered by the mount below, they could not be read, and nobody could say who
# lives in them.
grep -F ' - nsfs ' /proc/self/mountinfo | cut -d ' ' -f 5 | while read -r path; do umount -l "$path" || true; done
# What a node has for itself. /run holds the namespaces, iptables' lock, and the sockets of containerd's shims.
mkdir -p /var/lib/cni /etc/cni /opt
for path in /run /var/lib/cni /etc/cni /opt; do mount -t tmpfs -o mode=755 tmpfs $path; done
mkdir -p /run/netns /run/lock /run/flannel /etc/cni/net.d /opt/cni/bin
ln -s "$plugins"/* /opt/cni/bin
# /sys of the new network namespace, with the machine's cgroups.
mkdir -p "$directory/cgroup"
mount --rbind /sys/fs/cgroup "$directory/cgroup"
mount -t sysfs sysfs /sys
mount --rbind "$directory/cgroup" /sys/fs/cgroup
umount -l "$directory/cgroup"
echo 1 >/proc/sys/net/ipv4/ip_forward
# The world outside is another namespace, with a program that answers on port 80.
ip netns add outside
ip link add up0 type veth peer name eth0 netns outside
ip address add 192.0.2.1/24 dev up0
ip link set up0 up
ip -n outside address add 192.0.2.2/24 dev eth0
ip -n outside link set eth0 up
ip -n outside link set lo up
ip route add default via 192.0.2.2
touch "$directory/up"
sleep infinity &
wait
