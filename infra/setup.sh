#!/bin/sh
# Makes .venv from infra/requirements.lock. Does nothing when the lock installed last is the lock of today.
# PYTHON chooses the interpreter; PIP_FIND_LINKS or UV_FIND_LINKS may name a folder of wheels. LOCK names another lock
# (infra/requirements-gpu.lock); the choice is remembered in .venv.
set -eu
cd "$(dirname "$0")/.."

stamp=.venv/.lock-digest
if [ -z "${LOCK:-}" ] && [ -f "$stamp" ]; then LOCK=$(cut -d' ' -f2 "$stamp"); fi
lock=${LOCK:-infra/requirements.lock}
fail() { echo "error: $*" >&2; exit 2; }

# A broken or foreign .venv must not pass for a finished one, so the stamp alone is not enough.
if [ -d .venv ]; then
  .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    fail ".venv has no working Python 3.11 or newer; remove the folder and run make setup again"
fi

[ -f "$lock" ] || fail "no lock file $lock; name one of infra/*.lock in LOCK"

# "digest path" of the lock; Python's own, since not every system has sha256sum.
mark() {
  .venv/bin/python -c 'import hashlib, sys
name = sys.argv[1]
print(hashlib.sha256(open(name, "rb").read()).hexdigest(), name)' "$lock"
}

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(mark)" ]; then
  exit 0
fi

if [ ! -d .venv ]; then
  python=
  for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      python=$candidate
      break
    fi
  done
  [ -n "$python" ] || fail "no Python 3.11 or newer (tried: ${PYTHON:-python3.11 python3.12 python3.13 python3});" \
    "install one, or name it: PYTHON=/path/to/python make setup"
  "$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "$python cannot make virtual environments; install its venv package (Debian and Ubuntu: apt-get install python3-venv)"
  "$python" -m venv .venv || { rm -rf .venv; fail "$python -m venv failed; see above"; }
fi

echo "setup: installing $lock into .venv (a few minutes the first time)"
rm -f "$stamp"
.venv/bin/python -m pip install -q "uv==0.13.9"
# uv does not read pip's settings.
: "${UV_FIND_LINKS:=${PIP_FIND_LINKS:-}}"
if [ -n "$UV_FIND_LINKS" ]; then export UV_FIND_LINKS; else unset UV_FIND_LINKS; fi
# The lock is complete; without --no-deps the three packages it leaves out on purpose would come back.
# Compiled here once: without bytecode every worker process would compile half a million lines as it starts.
.venv/bin/uv pip install -q --compile-bytecode --python .venv/bin/python --no-deps -r "$lock"
.venv/bin/python -W ignore -c 'import torch, ray, vllm, deepspeed, mlflow; print("setup: ready, torch", torch.__version__)' ||
  fail "the installed packages do not import; remove .venv and run make setup again"
mark > "$stamp"
