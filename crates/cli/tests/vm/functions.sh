# At the beginning of each part of a guest; `program` is wirecost.

wirecost() {
    "$program" "$@"
}

# measure NAME COMMAND [ARGUMENT]...: a command of wirecost, its results in NAME.json, NAME.txt, NAME.err and its exit status in
# NAME.code. On a busy machine an emulated CPU stands still at times. A run that is invalid for that (4) is repeated, twice at most;
# what it left before is in NAME.1.json and NAME.2.json. `by` is a command that runs it.
measure() {
    local name=$1 attempt code
    shift
    for attempt in 1 2 3; do
        code=0
        ${by:-} timeout 300 "$program" "$@" --json "$name.json" >"$name.txt" 2>"$name.err" || code=$?
        if ((code != 4 || attempt == 3)); then
            break
        fi
        mv "$name.json" "$name.$attempt.json"
    done
    echo "$code" >"$name.code"
}

# The device with an address of Ethernet.
device_of() {
    grep -l "$1" /sys/class/net/*/address | cut -d/ -f5
}

# is_running FILE: fails where the last job has ended, and then shows FILE, which has what it said.
is_running() {
    if ! kill -0 $! 2>/dev/null; then
        cat "$1"
        return 1
    fi
}
