{{/* nvsentinel.defaults fills in what a value null takes away. Helm removes such a key before a template sees it; a
flag made of it would say %!s(<nil>), and a switch that is on by default would be off. What is in `global` is not
only ours to fill in: each reader of it takes nothing for an answer. Besides it says which namespace is meant, as
.Values.namespace, and names the Secret of a trial database as the store's. Every template begins with it, because nothing says in which order Helm takes them. */}}
{{- define "nvsentinel.defaults" -}}
{{- if not (hasKey .Values "namespace") -}}
{{- include "nvsentinel.fill" (dict "have" .Values "from" (omit (.Files.Get "defaults.yaml" | fromYaml) "global")) -}}
{{- $_ := set .Values "namespace" (.Values.namespaceOverride | default .Release.Namespace) -}}
{{- include "nvsentinel.trial" . -}}
{{- end -}}
{{- end }}

{{/* fill gives a map the keys that it lacks of another, but for those that have a meaning without: they are listed. */}}
{{- define "nvsentinel.fill" -}}
{{- $have := .have -}}
{{- range $key, $default := omit .from "resources" "nodeSelector" "tolerations" "updateStrategy" "systemNamespaces" -}}
{{- if hasKey $have $key -}}
{{- if and (kindIs "map" $default) (kindIs "map" (get $have $key)) -}}
{{- include "nvsentinel.fill" (dict "have" (get $have $key) "from" $default) -}}
{{- end -}}
{{- else -}}
{{- $_ := set $have $key $default -}}
{{- end -}}
{{- end -}}
{{- end }}
