#!/bin/sh
# Runs a program of this bundle with the libtorch of this machine's PyTorch: ./run.sh PROGRAM [ARGUMENT ...]
#   ./run.sh stoker train --profile offload --set device.backend=libtorch-cuda
#   STOKER_TEST_BACKEND=libtorch-cuda ./run.sh step seednet clip=1
# CIFAR_BIN, which the benches read, is this bundle's. Exit code 2: it could not be run; else the program's.
built_with=@TORCH@

fail() {
    echo "run.sh: $*" >&2
    exit 2
}

case $0 in */*) here=${0%/*} ;; *) here=. ;; esac
here=$(CDPATH='' cd -- "$here" && pwd) || fail "cannot enter the directory of $0"

name=${1-}
programs=
known=
for program in "$here"/programs/*.gz; do
    program=${program##*/}
    program=${program%.gz}
    programs="$programs $program"
    [ "$program" = "$name" ] && known=yes
done
[ "$known" ] || fail "found no program \`$name\` here, wanted one of:$programs"
shift

command -v python3 >/dev/null || fail "found no python3, wanted one with PyTorch $built_with: put its directory into PATH"
found=$(python3 -c 'import os, torch; print(torch.__version__, os.path.dirname(torch.__file__))') ||
    fail "$(command -v python3) has no PyTorch, wanted $built_with: activate its environment, or \`pip install torch==$built_with\`"
version=${found%% *}
torch=${found#* }
[ -d "$torch/lib" ] || fail "PyTorch has no directory $torch/lib, wanted it for libtorch: use PyTorch as pip installs it"
# What follows `+` is the CUDA that it was built for.
[ "${version%%+*}" = "$built_with" ] ||
    echo "run.sh: warning: PyTorch is $version, and this was built with $built_with: it may not start" >&2

libraries=$torch/lib
for directory in "${torch%/*}"/nvidia/*/lib; do
    [ -d "$directory" ] && libraries=$libraries:$directory
done
export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export CIFAR_BIN="$here/cifar.bin"

# Unpacked once, whole or not at all.
program=$here/programs/$name
if [ ! -x "$program" ]; then
    { gzip -dc "$program.gz" >"$program.$$" && chmod +x "$program.$$" && mv "$program.$$" "$program"; } || {
        rm -f "$program.$$"
        fail "cannot unpack $program.gz beside it: see that gzip is there and $here can be written"
    }
fi
exec "$program" "$@"
