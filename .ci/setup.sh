#!/bin/sh
# Makes .venv from requirements.lock, and Java 17 where there is none; `make` calls it before each target.
#
# Does nothing when .venv was made from the present lock, in this folder. Otherwise: choose a Python, find or
# install Java, install every locked package with its hash checked, install the project itself as editable,
# and let Ivy fetch Delta's jars once. All of it stays in .venv, pip's cache and Ivy's cache (~/.ivy2.5.2).
set -eu

here=$(cd "$(dirname "$0")/.." && pwd -P)
venv=$here/.venv
lock=$here/requirements.lock
java_packages="openjdk-17-jre-headless openjdk-21-jre-headless"

# What a user's shell may have set must not lead packages elsewhere, or other packages in here.
unset VIRTUAL_ENV PYTHONPATH PYTHONHOME PYTHONUSERBASE PIP_TARGET PIP_PREFIX PIP_ROOT PIP_CONSTRAINT PIP_REQUIREMENT
unset SPARK_HOME SPARK_CONF_DIR PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON PYSPARK_SUBMIT_ARGS
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONNOUSERSITE=1

say() { printf 'setup: %s\n' "$*" >&2; }

fail() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

on_debian_as_root() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }

apt_install() {
    say "apt-get install $*"
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >&2
}

# --- Java -----------------------------------------------------------------------------------------------

# Spark 4.2 runs on Java 17 or newer and asks for a module that cut-down Java runtimes leave out.
java_home_of() {
    "$1" --add-modules=jdk.incubator.vector -XshowSettings:properties -version 2>&1 | awk -F' = ' '
        $1 ~ /^ *java\.home$/ { home = $2 }
        $1 ~ /^ *java\.specification\.version$/ { version = $2 }
        END { if (version + 0 >= 17) print home }'
}

find_java() {
    for java in "${JAVA_HOME:-}/bin/java" "$(command -v java || true)" \
        /usr/lib/jvm/*/bin/java /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java; do
        if [ -x "$java" ]; then
            java_home=$(java_home_of "$java")
            if [ -n "$java_home" ]; then return 0; fi
        fi
    done
    return 1
}

install_java() {
    on_debian_as_root || fail \
        "Spark needs Java 17 or newer, and none was found by JAVA_HOME, on PATH or in /usr/lib/jvm." \
        "Install it, then run make again:" \
        "  Debian, Ubuntu:  sudo apt-get update && sudo apt-get install -y openjdk-17-jre-headless" \
        "                   (a release without that package: openjdk-21-jre-headless)" \
        "  macOS:           brew install --cask temurin@17"
    apt-get update -qq >&2 || say "apt-get update failed; trying with the package lists that are there"
    for package in $java_packages; do
        if apt-cache show "$package" >/dev/null 2>&1; then
            apt_install "$package" && find_java && return 0
        fi
    done
    fail "none of these could be installed: $java_packages. Install a Java 17 or newer, then run make again."
}

# --- Python ---------------------------------------------------------------------------------------------

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

can_make_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

# The first Python that is new enough and can make an environment; else the first that is new enough.
find_python() {
    python=
    for name in python3 python3.13 python3.12 python3.11; do
        candidate=$(command -v "$name" || true)
        if [ -n "$candidate" ] && is_new_enough "$candidate"; then
            if can_make_venv "$candidate"; then
                python=$candidate
                return 0
            fi
            python=${python:-$candidate}
        fi
    done
    [ -n "$python" ] || fail \
        "Python 3.11 or newer is needed; neither python3 nor python3.11 to python3.13 on PATH is one." \
        "Install it, then run make again:" \
        "  Debian, Ubuntu:  sudo apt-get install -y python3 python3-venv" \
        "  macOS:           brew install python@3.13"
}

install_venv_module() {
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    on_debian_as_root || fail \
        "$python has no ensurepip, which a virtual environment needs. Install it, then run make again:" \
        "  Debian, Ubuntu:  sudo apt-get update && sudo apt-get install -y $package"
    apt-get update -qq >&2 || say "apt-get update failed; trying with the package lists that are there"
    apt_install "$package" || fail "apt-get could not install $package."
    can_make_venv "$python" || fail \
        "$python has no ensurepip even with $package installed: put another Python >= 3.11 first on PATH."
}

# --- .venv ----------------------------------------------------------------------------------------------

pip_install() { "$venv/bin/python" -m pip install --quiet --no-input "$@" >&2; }

# One package with its hashes, as the lock has it.
locked() { awk -v name="$1==" 'index($0, name) == 1 { on = 1; print; next } /^[^ ]/ { on = 0 } on' "$lock"; }

install_packages() {
    "$python" -m venv --clear "$venv"
    # pyspark is published as a source archive only. What builds it comes from the lock as well, not from
    # the isolated environment that pip would fill with whatever is newest.
    for name in packaging setuptools wheel; do locked "$name"; done >"$venv/build.lock"
    pip_install --require-hashes --no-deps --requirement "$venv/build.lock"
    pip_install --require-hashes --no-deps --no-build-isolation --requirement "$lock"
}

install_project() {
    pip_install --no-deps --no-build-isolation --editable "$here"
    cp "$here/pyproject.toml" "$venv/installed-pyproject.toml"
}

# Ivy fetches Delta's jars when a session starts; here, so that no test and no demo waits for it.
fetch_jars() {
    "$venv/bin/python" -c 'from claimlib.session import open_session; open_session().stop()' \
        >"$venv/jars.log" 2>&1 || fail \
        "Spark did not start, or Delta's jars could not be fetched from Maven Central; the end of" \
        "$venv/jars.log:" "$(tail -n 5 "$venv/jars.log")" "Then run make again."
}

# With it a JVM starts in two thirds of the time; without it all works as well.
make_class_archive() {
    "$venv/bin/python" -m claimlib.session.class_archive >"$venv/class-archive.log" 2>&1 ||
        say "Java kept no archive of Spark's classes (see $venv/class-archive.log): it starts slower"
}

# --- What was set up, for which folder -------------------------------------------------------------------

is_ready() {
    [ -f "$venv/environment" ] && . "$venv/environment" && [ "$made_in" = "$here" ] &&
        cmp -s "$lock" "$venv/installed-requirements.lock" &&
        [ -x "$venv/bin/python" ] && [ -x "$JAVA_HOME/bin/java" ]
}

quoted() { printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"; }

write_environment() {
    {
        printf 'made_in=%s\n' "$(quoted "$here")"
        printf 'export JAVA_HOME=%s\n' "$(quoted "$java_home")"
    } >"$venv/environment"
}

if is_ready; then
    cmp -s "$here/pyproject.toml" "$venv/installed-pyproject.toml" || install_project
    exit 0
fi

[ ! -L "$venv" ] || fail \
    "$venv is a link, and the environment behind it was made for another folder or another lock: remove" \
    "the link, and run make again."
find_python
can_make_venv "$python" || install_venv_module
find_java || install_java
say "Python is $python, Java is $java_home"
say "filling .venv from requirements.lock (the first time about 720 MB, most of it Spark; a few minutes)"
rm -rf "$venv/environment"
install_packages
install_project
export JAVA_HOME="$java_home"
say "fetching Delta's jars"
fetch_jars
say "keeping Spark's classes for faster starts"
make_class_archive
cp "$lock" "$venv/installed-requirements.lock"
write_environment
say "done"
