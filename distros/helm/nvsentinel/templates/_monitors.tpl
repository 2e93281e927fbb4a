{{/* nvsentinel.nodeMonitors are the monitors that run on every node and hand their events to its connector, as JSON:
name, whether it is enabled, the check names that are its own, the strategy of its events, and whether it needs a
network. None has a token for the API server. */}}
{{- define "nvsentinel.nodeMonitors" -}}
{{- $v := .Values -}}
{{- $gpu := "" -}}{{- if $v.gpuHealthMonitor.enabled }}{{ $gpu = include "nvsentinel.gpuStrategy" . }}{{ end -}}
{{- list
  (dict "name" "syslog-health-monitor" "enabled" $v.syslogHealthMonitor.enabled "checks" (list "SysLogs*")
    "strategy" (include "nvsentinel.strategy" $v.syslogHealthMonitor))
  (dict "name" "gpu-health-monitor" "enabled" $v.gpuHealthMonitor.enabled "checks" (list "Gpu*")
    "strategy" $gpu "network" true)
  (dict "name" "nic-health-monitor" "enabled" $v.nicHealthMonitor.enabled "checks" (list "InfiniBand*" "Ethernet*")
    "strategy" ($v.nicHealthMonitor.processingStrategy | default "PERSIST_ONLY"))
  | toJson -}}
{{- end }}

{{/* nvsentinel.nodeMonitorNames are their names, as JSON. */}}
{{- define "nvsentinel.nodeMonitorNames" -}}
{{- $names := list -}}
{{- range include "nvsentinel.nodeMonitors" . | fromJsonArray }}{{ $names = append $names .name }}{{ end -}}
{{- toJson $names -}}
{{- end }}
