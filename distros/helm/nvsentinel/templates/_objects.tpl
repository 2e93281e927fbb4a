{{/* objects renders "nvsentinel.objects.<of>", with what every object of the chart has: the labels and annotations that
Kubernetes recommends and the values add. Objects that the values leave to somebody else are left out. */}}
{{- define "nvsentinel.objects" -}}
{{- include "nvsentinel.defaults" .root -}}
{{- $v := .root.Values -}}
{{- $labels := dict "app.kubernetes.io/part-of" "nvsentinel" "app.kubernetes.io/instance" .root.Release.Name "app.kubernetes.io/managed-by" .root.Release.Service
  "app.kubernetes.io/version" .root.Chart.AppVersion "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_") -}}
{{- $left := list -}}
{{- if not $v.rbac.create }}{{ $left = append $left "(Cluster)?Role(Binding)?" }}{{ end -}}
{{- if not $v.serviceAccount.create }}{{ $left = append $left "ServiceAccount" }}{{ end -}}
{{- $left = printf `(?m)^kind: (%s)$` (join "|" $left | default "-") -}}
{{- range regexSplit `(?m)^---$` (include (printf "nvsentinel.objects.%s" .of) .root) -1 -}}
{{- if and (regexMatch `(?m)^kind:` .) (not (regexMatch $left .)) }}
{{- $annotations := $v.commonAnnotations }}
{{- if regexMatch `(?m)^kind: ServiceAccount$` . }}
{{- $own := get $v ((fromYaml .).metadata.name | camelcase | untitle) | default dict }}
{{- $annotations = merge (dict) ($own.serviceAccountAnnotations | default dict) $v.serviceAccount.annotations $annotations }}
{{- end }}
---
{{ include "nvsentinel.mark" (dict "text" (include "nvsentinel.mark" (dict "text" . "key" "labels" "with" (merge (dict) $v.commonLabels $labels)))
  "key" "annotations" "with" $annotations) | trim }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* mark adds labels or annotations to the metadata of one object's text, whose comments stay. What the object says
itself counts more. */}}
{{- define "nvsentinel.mark" -}}
{{- $metadata := regexFind `(?m)^metadata:(?: \{.*\}$|(?:\n  .*)+)` .text -}}
{{- $parsed := (fromYaml $metadata).metadata -}}
{{- if .with }}{{ $_ := set $parsed .key (merge (get $parsed .key | default dict) .with) }}{{ end -}}
{{- .text | replace $metadata (printf "metadata:\n%s" (toYaml $parsed | indent 2)) -}}
{{- end }}
