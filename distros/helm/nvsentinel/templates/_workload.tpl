{{/* What _pod.tpl makes, in its ConfigMaps and its Deployment or DaemonSet. */}}
{{- define "nvsentinel.configMaps" -}}
{{- $root := .root -}}{{- $labels := include "nvsentinel.labels" . -}}
{{- range .configs }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- $labels | nindent 4 }}
data:
  {{- range $file, $text := .files }}
  {{ $file }}: |
    {{- $text | trim | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "nvsentinel.deployment" -}}
{{- include "nvsentinel.configMaps" . }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "nvsentinel.labels" . | nindent 4 }}
spec:
  replicas: {{ .values.replicas | default 1 }}
  # One goes before its successor comes: there need not be a node for one more.
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1, maxSurge: 0}}
  selector: {matchLabels: {app.kubernetes.io/name: {{ .name }}}}
  template:
    metadata:
      {{- include "nvsentinel.podMeta" . | nindent 6 }}
    spec:
      {{- include "nvsentinel.podSpec" . | nindent 6 }}
{{- end }}

{{- define "nvsentinel.daemonSet" -}}
{{- include "nvsentinel.configMaps" . }}
---
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "nvsentinel.labels" . | nindent 4 }}
spec:
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
