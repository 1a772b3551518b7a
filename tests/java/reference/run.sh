#!/bin/sh
# Starts the reference server; the arguments are those of the interop server. Builds it when needed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ ! -d "$here/target/classes" ] || [ ! -d "$here/target/lib" ]; then
    (cd "$here" && mvn -q -B -ntp process-classes) >&2
fi
# One compiler tier and the serial collector: the tests start this program often, and briefly.
exec java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto \
    -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
    -cp "$here/target/classes:$here/target/lib/*" encke.reference.ReferenceServer "$@"
