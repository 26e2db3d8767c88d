{{- define "thalweg.name" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "thalweg.selector" -}}
app.kubernetes.io/name: thalweg
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "thalweg.labels" -}}
{{ include "thalweg.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- /* Scheduler and workers are no nodes: they have a name of their own. */ -}}
{{- define "thalweg.dask" -}}
app.kubernetes.io/name: thalweg-dask
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "thalweg.scheduler" -}}
tcp://{{ include "thalweg.name" . }}-scheduler:8786
{{- end -}}

{{- define "thalweg.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "thalweg.name" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- /* Names that nodes without keys are reached by: in the cluster, and from outside. Any that may be
anybody's, such as *.example, is left out. */ -}}
{{- define "thalweg.hosts" -}}
{{- $inside := printf "%s.%s" (include "thalweg.name" .) .Release.Namespace -}}
{{- $hosts := list $inside (printf "%s.svc" $inside) (printf "%s.svc.cluster.local" $inside) -}}
{{- if .Values.ingress.enabled }}{{ $hosts = concat $hosts .Values.ingress.hosts }}{{ end -}}
{{- if .Values.httpRoute.enabled }}{{ $hosts = concat $hosts .Values.httpRoute.hostnames }}{{ end -}}
{{- $named := list -}}
{{- range $hosts | uniq }}{{ if not (contains "*" .) }}{{ $named = append $named . }}{{ end }}{{ end -}}
{{- toJson $named -}}
{{- end -}}

{{- define "thalweg.secret" -}}
{{- default (include "thalweg.name" .) .Values.secret.name -}}
{{- end -}}

{{- /* The files that the Secret holds, by name. */ -}}
{{- define "thalweg.files" -}}
{{- if .Values.secret.name -}}
{{- .Values.secret.holds | sortAlpha | toJson -}}
{{- else -}}
{{- keys .Values.secret.values | sortAlpha | toJson -}}
{{- end -}}
{{- end -}}

{{- /* Seconds from the decision to end a node to its end: the service ends a worker 10 seconds after
its drain, and 5 are spare. */ -}}
{{- define "thalweg.grace" -}}
{{- with .Values.drain -}}
{{- add .preStopSeconds .delaySeconds .seconds 15 -}}
{{- end -}}
{{- end -}}

{{- /* MiB that a node may take at most, as deploy/README.md has it: the supervisor; each worker (one
for small requests, one for single reads, one for each CPU); what requests hold; uploads to an object
store, of which each holds 24 MiB that nobody accounts; a run computed in a process of its own for each
CPU; decoders. */ -}}
{{- define "thalweg.memory" -}}
{{- $workers := add 2 .Values.cpus -}}
{{- with .Values.memory -}}
{{- add 55 (mul 300 $workers) .limitMiB (mul 24 .uploads) (mul 300 $.Values.cpus) (mul .decoders (add 200 .decoderMiB)) .spareMiB -}}
{{- end -}}
{{- end -}}

{{- /* MiB of a worker: what looks after it, itself, what tasks hold, what is beside, and decoders. */ -}}
{{- define "thalweg.workerMemory" -}}
{{- with .Values -}}
{{- add 100 300 .dask.memoryMiB 1024 (mul .memory.decoders (add 200 .memory.decoderMiB)) -}}
{{- end -}}
{{- end -}}

{{- define "thalweg.checks" -}}
{{- $grace := include "thalweg.grace" . | int -}}
{{- if and .Values.autoscaling.enabled (lt (int .Values.autoscaling.scaleDownSeconds) $grace) -}}
{{- fail (printf "autoscaling.scaleDownSeconds is %d, less than the longest drain: set it to at least %d" (int .Values.autoscaling.scaleDownSeconds) $grace) -}}
{{- end -}}
{{- if gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas) -}}
{{- fail "autoscaling.minReplicas is more than autoscaling.maxReplicas" -}}
{{- end -}}
{{- if and .Values.secret.name .Values.secret.values -}}
{{- fail "secret.name names a Secret, and secret.values would make one: set one of them" -}}
{{- end -}}
{{- if not (has "state" (include "thalweg.files" . | fromJsonArray)) -}}
{{- fail "no Secret holds the address of the database: set secret.name to a Secret with the entry state, or secret.values.state to postgres://user:password@host/database" -}}
{{- end -}}
{{- if and .Values.metrics.open (or .Values.ingress.enabled .Values.httpRoute.enabled (ne .Values.service.type "ClusterIP")) -}}
{{- fail "metrics.open would publish /metrics through the Ingress, HTTPRoute or Service: set it to false, and metrics.serviceMonitor.keySecret to a key for Prometheus" -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.open) (not .Values.allowAnonymous) (not .Values.metrics.serviceMonitor.keySecret.name) -}}
{{- fail "/metrics needs a key: set metrics.serviceMonitor.keySecret to the Secret that holds one, or metrics.open to true" -}}
{{- end -}}
{{- end -}}
