#!/bin/sh
# Starts CometD's own server (tests/java/reference, built before) as a rival of the comparison; ends when its input does.
#
#   COMETD_HEAP=2g     the heap, whole from the start
#   COMETD_GC=…        the collector: Serial, Parallel or G1
set -eu
reference=$(cd "$(dirname "$0")/../../../tests/java/reference" && pwd)
heap=${COMETD_HEAP:-2g}
# Times as CometD's own load server has them; nobody asks for compression, and it is off all the same.
exec java "-Xms$heap" "-Xmx$heap" -XX:+AlwaysPreTouch "-XX:+Use${COMETD_GC:-Parallel}GC" \
    -Dorg.slf4j.simpleLogger.defaultLogLevel=error \
    -cp "$reference/target/classes:$reference/target/lib/*" encke.reference.ReferenceServer \
    --set jsonContext=org.cometd.server.JacksonJSONContextServer \
    --set timeout=20000 --set maxInterval=50000 \
    --set maxMessageSize=1048576 --set ws.idleTimeout=120000 \
    --set ws.enableExtension.permessage-deflate=false "$@"
