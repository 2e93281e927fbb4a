{{/* What _pod.tpl makes, in its ConfigMaps and its Deployment or DaemonSet. */}}
{{- define "nvsentinel.configMaps" -}}
{{- $root := .root -}}{{- $labels := include "nvsentinel.labels" . -}}
{{- range .configs }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .name }}
  namespace: {{ $root.Values.namespace }}
  labels:
    {{- $labels | nindent 4 }}
data:
  {{- range $file, $text := .files }}
  {{ $file }}: |
    {{- $text | trim | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* A controller of profile small has no Deployment: templates/nvsentinel-controller.yaml gathers it. */}}
{{- define "nvsentinel.deployment" -}}
{{- if eq (include "nvsentinel.podOf" .) .name -}}
{{- include "nvsentinel.oneDeployment" . }}
{{- else if hasKey .root.Values "gathered" -}}
{{- $_ := set .root.Values "gathered" (append .root.Values.gathered .) -}}
{{- end -}}
{{- end }}

{{- define "nvsentinel.oneDeployment" -}}
{{- include "nvsentinel.own" . }}
{{- include "nvsentinel.configMaps" . }}
{{- include "nvsentinel.disruptionBudget" . }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ .root.Values.namespace }}
  labels:
    {{- include "nvsentinel.labels" . | nindent 4 }}
spec:
  replicas: {{ .values.replicas | default 1 }}
  {{- include "nvsentinel.history" . }}
  {{- /* A successor comes before one goes: a bad image or a full node takes none away. Where it may have no place
  beside the others, or there must not be two, one goes first. */}}
  {{- $first := or (not .values.replicas) (eq .root.Values.antiAffinity "required") }}
  strategy:
    {{- toYaml (.values.strategy | default .root.Values.controllers.strategy |
      default (dict "type" "RollingUpdate" "rollingUpdate" (dict "maxUnavailable" (ternary 1 0 $first) "maxSurge" (ternary 0 1 $first)))) | nindent 4 }}
  selector: {matchLabels: {app.kubernetes.io/name: {{ .name }}}}
  template:
    metadata:
      {{- include "nvsentinel.podMeta" . | nindent 6 }}
    spec:
      {{- include "nvsentinel.podSpec" . | nindent 6 }}
{{- end }}

{{- define "nvsentinel.daemonSet" -}}
{{- include "nvsentinel.own" . }}
{{- include "nvsentinel.configMaps" . }}
---
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .name }}
  namespace: {{ .root.Values.namespace }}
  labels:
    {{- include "nvsentinel.labels" . | nindent 4 }}
spec:
  {{- include "nvsentinel.history" . }}
  {{- with .values.updateStrategy }}
  updateStrategy:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  selector: {matchLabels: {app.kubernetes.io/name: {{ .name }}}}
  template:
    metadata:
      {{- include "nvsentinel.podMeta" . | nindent 6 }}
    spec:
      {{- include "nvsentinel.podSpec" . | nindent 6 }}
{{- end }}

{{- define "nvsentinel.history" -}}
{{- if not (kindIs "invalid" .values.revisionHistoryLimit) }}
  revisionHistoryLimit: {{ .values.revisionHistoryLimit }}
{{- end }}
{{- end }}

{{/* disruptionBudget keeps evictions from taking all replicas at once. A pod that is not ready protects nobody. */}}
{{- define "nvsentinel.disruptionBudget" -}}
{{- $budget := mergeOverwrite (deepCopy .root.Values.controllers.podDisruptionBudget) (.values.podDisruptionBudget | default dict) -}}
{{- if and $budget.enabled (gt (int .values.replicas) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .root.Values.namespace }}
  labels:
    {{- include "nvsentinel.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ $budget.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector: {matchLabels: {app.kubernetes.io/name: {{ .name }}}}
{{- end }}
{{- end }}
