{{/* What no schema can say. */}}

{{/* clusterAgents is not empty if a publisher speaks for all nodes. */}}
{{- define "nvsentinel.clusterAgents" -}}
{{- if or .Values.kubernetesObjectMonitor.enabled .Values.healthEventsAnalyzer.enabled }}yes{{ end -}}
{{- range .Values.platformConnectors.publishers }}{{ if .clusterWide }}yes{{ end }}{{ end -}}
{{- end }}

{{/* requireStore stops where a service has no store. */}}
{{- define "nvsentinel.requireStore" -}}
{{- if not .root.Values.store.secretName }}
{{- fail (printf "\n\nstore.secretName is empty, and %s keeps its records in a store that every node can reach: create a Secret in namespace %s whose key %s is the address of a PostgreSQL or MongoDB, and name it. SQLite is for one host alone.\n" .name .root.Release.Namespace .root.Values.store.secretKey) }}
{{- end }}
{{- end }}

{{/* requireConnector stops where a publisher has nobody to speak to. */}}
{{- define "nvsentinel.requireConnector" -}}
{{- if not .root.Values.platformConnectors.enabled }}
{{- fail (printf "\n\nplatformConnectors.enabled is false, and %s hands its events to the connector of its node: enable it, or disable %s\n" .name .name) }}
{{- end }}
{{- end }}

{{/* pluginHost is where the janitor finds its plugin. */}}
{{- define "nvsentinel.pluginHost" -}}
{{- if .Values.janitor.cspPlugin.host -}}
{{ .Values.janitor.cspPlugin.host }}
{{- else if or .Values.cspPluginAws.enabled .Values.cspPluginKwok.enabled -}}
csp-plugin.{{ .Release.Namespace }}.svc:9090
{{- else -}}
{{- fail "\n\njanitor.enabled is true, and it has no plugin: set cspPluginAws.enabled, or janitor.cspPlugin.host to your own (docs/plugins.md)\n" -}}
{{- end }}
{{- end }}

{{/* names are those that a TOML file gives its policies or rules, as JSON. */}}
{{- define "nvsentinel.names" -}}
{{- $names := list -}}
{{- range regexFindAll `(?m)^[ \t]*name[ \t]*=[ \t]*("[^"\n]+"|'[^'\n]+')` . -1 }}
{{- $names = append $names (regexReplaceAll `^[^"']*["'](.*)["']$` . "$1") }}
{{- end }}
{{- toJson ($names | uniq) -}}
{{- end }}
