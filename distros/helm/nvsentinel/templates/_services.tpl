{{/* The workloads of the chart, each a row: from these tables follow rights, policies, publishers and notes. */}}

{{/* nvsentinel.controllers are the services that the image nvsentinel-controller runs, as JSON, by the names that
--controllers takes. */}}
{{- define "nvsentinel.controllers" -}}
{{- list "fault-quarantine" "node-drainer" "fault-remediation" "repair-chain" "janitor" "node-health-check"
  "health-events-analyzer" "event-exporter" "kubernetes-object-monitor" "labeler" | toJson -}}
{{- end }}

{{/* nvsentinel.podOf is the name of the pods, and of their account, that run a service. */}}
{{- define "nvsentinel.podOf" -}}
{{- if and (eq .root.Values.profile "small") (has .name (include "nvsentinel.controllers" .root | fromJsonArray)) }}nvsentinel-controller{{ else }}{{ .name }}{{ end -}}
{{- end }}

{{/* nvsentinel.podsOf are those of several services, as JSON. It takes a dict: root and names. */}}
{{- define "nvsentinel.podsOf" -}}
{{- $root := .root -}}{{- $pods := list -}}
{{- range .names }}{{ $pods = append $pods (include "nvsentinel.podOf" (dict "root" $root "name" .)) }}{{ end -}}
{{- $pods | uniq | toJson -}}
{{- end }}

{{/* nvsentinel.nodeMonitors are the monitors that run on every node and hand their events to its connector, as JSON:
name, whether it is enabled, the check names that are its own, the strategy of its events, and what it reaches
(as services). None has a token for the API server. */}}
{{- define "nvsentinel.nodeMonitors" -}}
{{- $v := .Values -}}
{{- $gpu := "" -}}{{- if $v.gpuHealthMonitor.enabled }}{{ $gpu = include "nvsentinel.gpuStrategy" . }}{{ end -}}
{{- list
  (dict "name" "syslog-health-monitor" "enabled" $v.syslogHealthMonitor.enabled "checks" (list "SysLogs*")
    "strategy" (include "nvsentinel.strategy" $v.syslogHealthMonitor))
  (dict "name" "gpu-health-monitor" "enabled" $v.gpuHealthMonitor.enabled "checks" (list "Gpu*")
    "strategy" $gpu "reach" (list "hostEngine"))
  (dict "name" "nic-health-monitor" "enabled" $v.nicHealthMonitor.enabled "checks" (list "InfiniBand*" "Ethernet*")
    "strategy" ($v.nicHealthMonitor.processingStrategy | default "PERSIST_ONLY"))
  | toJson -}}
{{- end }}

{{/* nvsentinel.clusterPublishers speak for all nodes, as JSON: name, whether it is enabled, its check names, and its
account, if that has another name. csp-health-monitor's checks are its own before it is enabled. */}}
{{- define "nvsentinel.clusterPublishers" -}}
{{- $v := .Values -}}{{- $rules := list "MultipleRemediations" "Repeated*" "XID*" -}}
{{- with $v.healthEventsAnalyzer.rules }}{{ $rules = include "nvsentinel.names" . | fromJsonArray }}{{ end -}}
{{- list
  (dict "name" "csp-health-monitor" "enabled" $v.cspHealthMonitor.enabled "checks" (list "CSPMaintenance" "CSPUnreachable") "known" true)
  (dict "name" "kubernetes-object-monitor" "enabled" $v.kubernetesObjectMonitor.enabled
    "checks" (include "nvsentinel.names" (include "nvsentinel.policies" .) | fromJsonArray))
  (dict "name" "health-events-analyzer" "enabled" $v.healthEventsAnalyzer.enabled "checks" $rules)
  (dict "name" "nvsentinel-coverage" "enabled" (and $v.platformConnectorsCluster.enabled $v.platformConnectorsCluster.coverage.enabled)
    "checks" (list "GpuNodeUncovered") "account" "platform-connectors-cluster")
  (dict "name" "node-health-check" "enabled" (and $v.nodeHealthCheck.enabled $v.nodeHealthCheck.bridge) "checks" (list "NodeHealthCheck"))
  | toJson -}}
{{- end }}

{{/* nvsentinel.services are all workloads, as JSON: name, whether it is there, what its pods reach besides the API
server (by the keys of networkPolicy.egress, and gateway), and whether manifests/nodes.yaml is about its account. */}}
{{- define "nvsentinel.services" -}}
{{- $v := .Values -}}
{{- $services := list
  (dict "name" "fault-quarantine" "enabled" $v.faultQuarantine.enabled "reach" (list "store") "nodes" true)
  (dict "name" "node-drainer" "enabled" $v.nodeDrainer.enabled "reach" (list "store") "nodes" true)
  (dict "name" "fault-remediation" "enabled" $v.faultRemediation.enabled "reach" (list "store") "nodes" true)
  (dict "name" "event-exporter" "enabled" $v.eventExporter.enabled "reach" (list "store" "receiver"))
  (dict "name" "csp-health-monitor" "enabled" $v.cspHealthMonitor.enabled "reach" (list "store" "provider"))
  (dict "name" "health-events-analyzer" "enabled" $v.healthEventsAnalyzer.enabled "reach" (list "store"))
  (dict "name" "platform-connectors-gateway" "enabled" $v.platformConnectors.enabled "reach" (list "store"))
  (dict "name" "platform-connectors-cluster" "enabled" (and $v.platformConnectorsCluster.enabled (include "nvsentinel.clusterAgents" .)) "reach" (list "store") "nodes" true)
  (dict "name" "platform-connectors" "enabled" $v.platformConnectors.enabled "reach" (list "gateway") "nodes" true)
  (dict "name" "kubernetes-object-monitor" "enabled" $v.kubernetesObjectMonitor.enabled)
  (dict "name" "labeler" "enabled" $v.labeler.enabled "nodes" true)
  (dict "name" "metadata-collector" "enabled" $v.metadataCollector.enabled)
  (dict "name" "janitor" "enabled" (include "nvsentinel.janitorEnabled" .) "reach" (list "plugin") "nodes" true)
  (dict "name" "node-health-check" "enabled" $v.nodeHealthCheck.enabled)
  (dict "name" "repair-chain" "enabled" (include "nvsentinel.repairChainEnabled" .))
  (dict "name" "csp-plugin-kwok" "enabled" (include "nvsentinel.kwokEnabled" .) "nodes" true)
  (dict "name" "csp-plugin-node" "enabled" (include "nvsentinel.nodePluginEnabled" .)) -}}
{{- range include "nvsentinel.cloudPlugins" . | fromJsonArray }}{{ $services = append $services (dict "name" . "enabled" true "reach" (list "provider")) }}{{ end -}}
{{- concat $services (include "nvsentinel.nodeMonitors" . | fromJsonArray) | toJson -}}
{{- end }}

{{/* nvsentinel.there are the names of the services that are there, as JSON: of all, of those that reach something,
or of those of which nodes.yaml is. It takes a dict: root, and reach or nodes. */}}
{{- define "nvsentinel.there" -}}
{{- $names := list -}}{{- $asked := . -}}
{{- range include "nvsentinel.services" .root | fromJsonArray -}}
{{- if and .enabled (or (not $asked.reach) (has $asked.reach .reach)) (or (not $asked.nodes) .nodes) }}{{ $names = append $names .name }}{{ end -}}
{{- end -}}
{{- toJson $names -}}
{{- end }}

{{/* nvsentinel.nodeMonitorNames are the names of all of them, as JSON. */}}
{{- define "nvsentinel.nodeMonitorNames" -}}
{{- $names := list -}}
{{- range include "nvsentinel.nodeMonitors" . | fromJsonArray }}{{ $names = append $names .name }}{{ end -}}
{{- toJson $names -}}
{{- end }}
