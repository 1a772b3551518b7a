{{- define "encke.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "encke.fullname" -}}
{{- $name := include "encke.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "encke.selector" -}}
app.kubernetes.io/name: {{ include "encke.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "encke.labels" -}}
{{ include "encke.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "encke.serviceAccount" -}}
{{- default (include "encke.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "encke.scheme" -}}
{{- if .Values.tls.secret }}HTTPS{{ else }}HTTP{{ end -}}
{{- end -}}

{{/* The time from the deletion of a pod to its kill: preStop, the drain, and a margin. */}}
{{- define "encke.grace" -}}
{{- add .Values.drain.preStopSeconds (div (add .Values.drain.timeoutMs 999) 1000) .Values.drain.marginSeconds -}}
{{- end -}}

{{/* The configuration file. Texts in TOML are quoted as in JSON. */}}
{{- define "encke.toml" -}}
{{- with .Values.cluster }}
{{- if .servers -}}
[cluster]
servers = {{ .servers | toRawJson }}
name = {{ .name | toRawJson }}
{{- if .credentials.secret }}
credentials_file = {{ printf "/etc/encke/nats/%s" .credentials.key | toRawJson }}
{{- end }}
{{- if .user }}
user = {{ .user | toRawJson }}
{{- end }}
{{- if .password.secret }}
password_env = "NATS_PASSWORD"
{{- end }}
{{- if .token.secret }}
token_env = "NATS_TOKEN"
{{- end }}
{{- if .config }}
{{ .config | trim }}
{{- end }}
{{ end }}
{{- end }}
{{- range .Values.apiKeys }}
[[api_keys]]
name = {{ .name | toRawJson }}
key_file = {{ printf "/etc/encke/secrets/%s/%s" .secret .key | toRawJson }}
scopes = {{ .scopes | toRawJson }}
{{ end }}
{{- if .Values.metrics.secret }}
[[api_keys]]
name = "prometheus"
key_file = {{ printf "/etc/encke/secrets/%s/%s" .Values.metrics.secret .Values.metrics.key | toRawJson }}
scopes = ["metrics"]
{{ end }}
{{- end -}}

{{/* The names of all Secrets that are folders below /etc/encke/secrets, each once, as a list in JSON. */}}
{{- define "encke.secrets" -}}
{{- $names := .Values.secretFiles -}}
{{- range .Values.apiKeys }}{{ $names = append $names .secret }}{{ end -}}
{{- if .Values.metrics.secret }}{{ $names = append $names .Values.metrics.secret }}{{ end -}}
{{- $names | uniq | sortAlpha | toJson -}}
{{- end -}}

{{/* What no schema can say. */}}
{{- define "encke.check" -}}
{{- if and (not .Values.cluster.servers) (or (gt (int .Values.replicas) 1) .Values.autoscaling.enabled) -}}
{{- fail "several nodes need cluster.servers: without NATS a publication reaches the subscribers of one node only" -}}
{{- end -}}
{{- if gt (int .Values.drain.spreadMs) (int .Values.drain.timeoutMs) -}}
{{- fail "drain.spreadMs is longer than drain.timeoutMs: clients would be cut off before they are advised to leave" -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.secret) -}}
{{- fail "metrics.serviceMonitor needs metrics.secret: /metrics asks for a key" -}}
{{- end -}}
{{- range $name, $value := .Values.settings -}}
{{- if has $name (list "listen" "port" "data" "config" "cluster" "drain_timeout_ms" "drain_spread_ms" "tls_cert" "tls_key") -}}
{{- fail (printf "settings.%s: the chart sets it from other values" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
