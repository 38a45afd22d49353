#!/bin/sh
# A plugin that writes down how it was called and answers as it was told. Builtins only, but for cat: it has to be fast.
root=@ROOT@
type=${0##*/}
read -r step < "$root/step"
log=$root/log/$step

count() {
    seen=0
    [ -f "$1" ] && read -r seen < "$1"
    echo $((seen + 1)) > "$1"
}

count "$log.count"
call=$log.$seen
count "$log.$type.$CNI_COMMAND.count"
cat "/proc/$$/environ" > "$call.env"
echo "$0" > "$call.path"

answer=$root/answers/$step.$type.$CNI_COMMAND.$seen
[ -f "$answer" ] || answer=$root/answers/$step.$type.$CNI_COMMAND.0
status=0 signal='' sleep='' read_stdin=1 grandchild='' stderr='' stdout=''
if [ -f "$answer" ]; then
    . "$answer"
elif [ "$CNI_COMMAND" = ADD ]; then
    echo '{"cniVersion": "1.0.0"}'
fi
[ "$read_stdin" = 1 ] && cat > "$call.stdin"
[ -n "$stdout" ] && cat "$answer.stdout"
[ -n "$stderr" ] && cat "$answer.stderr" >&2
# Not "test && sleep &": its subshell lives on for a moment in every call, and counts as a process of the plugin.
if [ -n "$grandchild" ]; then sleep "$grandchild" 3>&- & fi
[ -n "$sleep" ] && exec sleep "$sleep"
[ -n "$signal" ] && kill "-$signal" $$
exit "$status"
