#!/bin/sh
# Pins infra/requirements.in (or, with the argument gpu, infra/requirements-gpu.in) into its lock file.
set -eu
cd "$(dirname "$0")/.."
uv=.venv/bin/uv
[ -x "$uv" ] || { echo "error: no $uv; run make setup first" >&2; exit 2; }
: "${UV_FIND_LINKS:=${PIP_FIND_LINKS:-}}"
if [ -n "$UV_FIND_LINKS" ]; then export UV_FIND_LINKS; else unset UV_FIND_LINKS; fi

if [ "${1:-cpu}" = gpu ]; then
  # A CPU wheel of torch in a local folder would hide the CUDA build and its libraries.
  unset UV_FIND_LINKS
  in=infra/requirements-gpu.in out=infra/requirements-gpu.lock
  set -- --python-platform x86_64-manylinux_2_28
else
  # torchvision, torchaudio and torchcodec of PyPI do not import beside the CPU build of torch, and nothing needs them.
  in=infra/requirements.in out=infra/requirements.lock
  set -- --override infra/overrides.txt
fi
# What is pinned stays pinned, unless UPGRADE=1; only what is new or no longer fits is resolved.
[ -n "${UPGRADE:-}" ] || { [ -f "$out" ] && cp "$out" "$out.new"; }
"$uv" pip compile -q "$in" "$@" --python-version 3.11 -o "$out.new"
# 2.13.0 matches the CPU build where one is offered, and still installs where none is.
sed -i.bak -e 's/^torch==2\.13\.0+cpu$/torch==2.13.0/' -e "s#$out\.new#$out#" "$out.new"
rm -f "$out.new.bak"
mv "$out.new" "$out"
echo "wrote $out"
