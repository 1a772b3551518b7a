#!/bin/sh
# Starts CometD's own server (tests/java/reference, built before) as a rival of the comparison; ends when its input does.
#
#   COMETD_JVM=…       other flags for heap and collector
set -eu
reference=$(cd "$(dirname "$0")/../../../tests/java/reference" && pwd)
# A fixed heap. Of Serial, Parallel and G1, Parallel delivers most on one core, and G1 least.
jvm=${COMETD_JVM:--Xms2g -Xmx2g -XX:+UseParallelGC}
# Times as CometD's own load server has them; nobody asks for compression, and it is off all the same.
# shellcheck disable=SC2086 # flags are words
exec java $jvm \
    -Dorg.slf4j.simpleLogger.defaultLogLevel=error \
    -cp "$reference/target/classes:$reference/target/lib/*" encke.reference.ReferenceServer \
    --set jsonContext=org.cometd.server.JacksonJSONContextServer \
    --set timeout=20000 --set maxInterval=50000 \
    --set maxMessageSize=1048576 --set ws.idleTimeout=120000 \
    --set ws.enableExtension.permessage-deflate=false "$@"
