{{/*
The pieces that every workload is made of. Each takes one dict:
  root        the top of the values
  name        of the workload, its objects and its image
  values      the workload's own values
  args        flags of its container
and, where it has them:
  image       name of the image, if not the workload's
  program     the program in it, if not the first one
  env, mounts, volumes, ports    lists of Kubernetes' own objects
  probes      name of the probes' port, if not metrics
  configs     files: a list of {name, volume, path, files, reload}, where reload
              says that the service follows a change by itself
  joined      true: configs of one path are in one volume there
  store       true: the address of the records is mounted
  storeSecret the Secret of that address, if not the services'
  publisher   true: the connector's socket and a token for it are mounted
  onNode      true: root, for the folders of the node
  privileged  true: all devices
  noAPI       true: it does not speak to the API server and gets no token for it
What is shared with other charts under `global` fills in what the values leave open.
*/}}

{{/* nvsentinel.own are the values of a workload, with those of `pods` where it says nothing, in place of the dict's
`values`. */}}
{{- define "nvsentinel.own" -}}
{{- $own := deepCopy .values -}}
{{- range $key, $all := .root.Values.pods -}}
{{- $its := get $own $key -}}
{{- if kindIs "map" $all }}{{ $_ := set $own $key (mergeOverwrite (deepCopy $all) ($its | default dict)) }}
{{- else if or (not (hasKey $own $key)) (eq (toString $its) "" "[]") }}{{ $_ := set $own $key $all }}{{ end -}}
{{- end -}}
{{- $_ := set . "values" $own -}}
{{- end }}

{{- define "nvsentinel.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/part-of: nvsentinel
{{- end }}

{{- define "nvsentinel.image" -}}
{{- $all := .root.Values.image -}}{{- $own := .values.image | default dict -}}{{- $global := .root.Values.global | default dict -}}
{{- $name := .image | default .name -}}
{{- if has .name (include "nvsentinel.controllers" .root | fromJsonArray) -}}
{{- $name = "nvsentinel-controller" -}}
{{- range $key, $value := .root.Values.nvsentinelController.image }}{{ $own = merge (dict) (ternary $own (dict $key $value) (ne (get $own $key | default "") "")) $own }}{{ end -}}
{{- end -}}
{{- $repository := $own.repository | default (printf "%s/%s" $all.repository $name) -}}
{{- $tag := $own.tag | default $all.tag | default ($global.image | default dict).tag | default .root.Chart.AppVersion -}}
{{ $own.registry | default $all.registry | default $global.imageRegistry | default "ghcr.io" | trimSuffix "/" }}/
{{- $repository }}{{ ternary "@" ":" (hasPrefix "sha256:" $tag) }}{{ $tag }}
{{- end }}

{{- define "nvsentinel.account" -}}
system:serviceaccount:{{ .root.Values.namespace }}:{{ .name }}
{{- end }}

{{/* storeFlag is a reference, which the services resolve: no secret in an argument. */}}
{{- define "nvsentinel.storeFlag" -}}
--store=${file:/etc/nvsentinel/store/{{ .Values.store.secretKey }}}
{{- end }}

{{/* electFlags lets one replica act. */}}
{{- define "nvsentinel.electFlags" -}}
{{- list "--leader-elect" (printf "--leader-elect-namespace=%s" .Values.namespace) | toJson -}}
{{- end }}

{{- define "nvsentinel.affinity" -}}
{{- if .values.affinity -}}
{{ toYaml .values.affinity }}
{{- else if and .onNode (.root.Values.global | default dict).affinity -}}
{{ toYaml .root.Values.global.affinity }}
{{- else if include "nvsentinel.hadGPUs" . -}}
# The fault itself may take the first label off: feature discovery writes it, and drops it
# when the last GPU leaves the bus. Nodes of which labeler knows that they had GPUs are
# watched as before, and the kernel log of those in quarantine.
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      - matchExpressions: [{key: nvidia.com/gpu.present, operator: In, values: ["true"]}]
      - matchExpressions: [{key: nvsentinel.dgxc.nvidia.com/gpu.count.expected, operator: Gt, values: ["0"]}]
      {{- /* Others would report of a node that never had GPUs that it has none, and so keep it in quarantine. */}}
      {{- if eq .name "syslog-health-monitor" }}
      - matchExpressions: [{key: dgxc.nvidia.com/nvsentinel-state, operator: Exists}]
      {{- end }}
{{- else if .values.replicas -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (dict "app.kubernetes.io/name" .name)) -}}
{{- $other := dict "weight" 100 "podAffinityTerm" $term -}}
# Nodes without GPUs are not the ones that are rebooted, and run nobody's jobs; those in
# quarantine are the last choice.
nodeAffinity:
  {{- if eq .root.Values.controllers.avoidGpuNodes "required" }}
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      - matchExpressions: [{key: nvidia.com/gpu.present, operator: DoesNotExist}]
  {{- end }}
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      preference: {matchExpressions: [{key: dgxc.nvidia.com/nvsentinel-state, operator: DoesNotExist}]}
    {{- if ne .root.Values.controllers.avoidGpuNodes "required" }}
    - weight: 100
      preference: {matchExpressions: [{key: nvidia.com/gpu.present, operator: DoesNotExist}]}
    {{- end }}
# One loss of a node does not take all replicas.
podAntiAffinity:
  {{- if eq .root.Values.antiAffinity "required" }}
  requiredDuringSchedulingIgnoredDuringExecution:
    - {{ toYaml $term | nindent 6 | trim }}
  {{- else }}
  preferredDuringSchedulingIgnoredDuringExecution:
    - {{ toYaml $other | nindent 6 | trim }}
  {{- end }}
{{- end }}
{{- end }}

{{/* spread are the topologySpreadConstraints of a Deployment, as JSON, about its own replicas unless they say others. */}}
{{- define "nvsentinel.spread" -}}
{{- $spread := list -}}{{- $selector := dict "labelSelector" (dict "matchLabels" (dict "app.kubernetes.io/name" .name)) -}}
{{- if not .onNode -}}
{{- range .values.topologySpreadConstraints | default .root.Values.controllers.topologySpreadConstraints }}{{ $spread = append $spread (merge (dict) . $selector) }}{{ end -}}
{{- end -}}
{{- toJson $spread -}}
{{- end }}

{{/* podMeta: pods are replaced when what they read at their start changes. */}}
{{- define "nvsentinel.podMeta" -}}
labels:
  {{- include "nvsentinel.labels" . | nindent 2 }}
  {{- with merge (dict) .values.podLabels .root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $sums := dict -}}
{{- range .configs }}{{ if not .reload }}{{ $_ := set $sums (printf "checksum/%s" .name) (toJson .files | sha256sum) }}{{ end }}{{ end }}
{{- with merge $sums .values.podAnnotations .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* onNodeSelector is the nodeSelector that the values give the pods on every node, as JSON. */}}
{{- define "nvsentinel.onNodeSelector" -}}
{{- toJson (merge (dict) (.values.nodeSelector | default dict) ((.root.Values.global | default dict).nodeSelector | default dict)) -}}
{{- end }}

{{/* hadGPUs is true where the pods go to GPU nodes and nobody has set an affinity: then an affinity stands for
nvidia.com/gpu.present=true in the nodeSelector. */}}
{{- define "nvsentinel.hadGPUs" -}}
{{- $selector := include "nvsentinel.onNodeSelector" . | fromJson -}}
{{- if and .onNode (not .values.affinity) (not (.root.Values.global | default dict).affinity) (eq (toString (get $selector "nvidia.com/gpu.present")) "true") -}}true{{- end -}}
{{- end }}

{{/* place is where pods go, as JSON. `global` has, as the earlier NVSentinel has it, what is for pods on every
node, and with `system` before it what is for the others. */}}
{{- define "nvsentinel.place" -}}
{{- $g := .root.Values.global | default dict -}}{{- $c := .root.Values.controllers -}}
{{- if .onNode -}}
{{- $selector := include "nvsentinel.onNodeSelector" . | fromJson -}}
{{- if include "nvsentinel.hadGPUs" . }}{{ $selector = omit $selector "nvidia.com/gpu.present" }}{{ end -}}
{{- toJson (dict "nodeSelector" $selector
  "tolerations" (concat (.values.tolerations | default list) ($g.tolerations | default list) | uniq)) -}}
{{- else -}}
{{- toJson (dict "nodeSelector" (.values.nodeSelector | default $c.nodeSelector | default $g.systemNodeSelector | default dict)
  "tolerations" (concat (.values.tolerations | default $c.tolerations | default $g.systemNodeTolerations | default list)
    (ternary (list (dict "key" "node.kubernetes.io/unschedulable" "operator" "Exists" "effect" "NoSchedule")) list $c.tolerateCordon) | uniq)) -}}
{{- end -}}
{{- end }}

{{/* driverEnv: by these variables the nvidia runtime puts the driver's library and its devices into a container. */}}
{{- define "nvsentinel.driverEnv" -}}
{{- list (dict "name" "NVIDIA_VISIBLE_DEVICES" "value" "all") (dict "name" "NVIDIA_DRIVER_CAPABILITIES" "value" "utility") | toJson -}}
{{- end }}

{{/* pullSecrets are the Secrets with which every pod of the suite is pulled, as a list in JSON. */}}
{{- define "nvsentinel.pullSecrets" -}}
{{- $secrets := .Values.image.pullSecrets | default list -}}
{{- range (.Values.global | default dict).imagePullSecrets }}{{ $secrets = append $secrets (ternary (dict "name" .) . (kindIs "string" .)) }}{{ end -}}
{{- toJson ($secrets | uniq) -}}
{{- end }}

{{/* placeFields are those of a pod that say with which Secrets it is pulled, and to which nodes it goes. */}}
{{- define "nvsentinel.placeFields" -}}
{{- with include "nvsentinel.pullSecrets" .root | fromJsonArray }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $place := include "nvsentinel.place" . | fromJson -}}
{{- with $place.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $place.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "nvsentinel.podSpec" -}}
{{- $root := .root -}}{{- $global := .root.Values.global | default dict -}}
serviceAccountName: {{ .name }}
{{- if .noAPI }}
automountServiceAccountToken: false
{{- end }}
{{- include "nvsentinel.placeFields" . }}
{{- with .values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with include "nvsentinel.affinity" . }}
affinity:
  {{- . | nindent 2 }}
{{- end }}
{{- with include "nvsentinel.spread" . | fromJsonArray }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if not (kindIs "invalid" .values.terminationGracePeriodSeconds) }}
terminationGracePeriodSeconds: {{ .values.terminationGracePeriodSeconds }}
{{- end }}
{{- /* On a node the folders are root's; group 0 is that of the connector's socket. */}}
{{- $security := dict "runAsUser" 0 "runAsGroup" 0 }}
{{- if not .onNode }}{{ $security = dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" (ternary 0 65532 (.publisher | default false)) "fsGroup" 65532 }}{{ end }}
securityContext:
  {{- toYaml (mergeOverwrite $security (dict "seccompProfile" (dict "type" "RuntimeDefault")) .values.podSecurityContext) | nindent 2 }}
containers:
  - name: {{ .name }}
    image: {{ include "nvsentinel.image" . | quote }}
    imagePullPolicy: {{ .values.image.pullPolicy | default $root.Values.image.pullPolicy }}
    {{- with .program }}
    command: ["/{{ . }}"]
    {{- end }}
    args:
      {{- if has .name (include "nvsentinel.controllers" .root | fromJsonArray) }}
      - "--controllers={{ .name }}"
      {{- end }}
      {{- range concat .args (.values.extraArgs | default list) }}
      - {{ . | quote }}
      {{- end }}
      {{- if and $global.dryRun (has .name (list "fault-quarantine" "node-drainer" "fault-remediation")) }}
      - "--dry-run=true" # global.dryRun: whatever else is said
      {{- end }}
    env:
      - {name: LOG_LEVEL, value: {{ .values.logLevel | default $root.Values.logLevel }}}
      {{- with concat (.env | default list) (.values.extraEnv | default list) }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- with .values.extraEnvFrom }}
    envFrom:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    ports:
      {{- toYaml (.ports | default (list (dict "name" "metrics" "containerPort" 2112))) | nindent 6 }}
    livenessProbe:
      httpGet: {path: /healthz, port: {{ .probes | default "metrics" }}}
      {{- with .values.livenessProbe }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    readinessProbe:
      httpGet: {path: /readyz, port: {{ .probes | default "metrics" }}}
      {{- with .values.readinessProbe }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- with .values.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- /* Some devices the kernel opens for a privileged container alone. */}}
    {{- $security := dict "privileged" true }}
    {{- if not .privileged }}
    {{- $security = dict "allowPrivilegeEscalation" false "capabilities" (dict "drop" (list "ALL")) }}
    {{- end }}
    securityContext:
      {{- toYaml (mergeOverwrite $security (dict "readOnlyRootFilesystem" true) .values.securityContext) | nindent 6 }}
    {{- with include "nvsentinel.mounts" . }}
    volumeMounts:
      {{- . | trim | nindent 6 }}
    {{- end }}
  {{- with .values.sidecars }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with include "nvsentinel.volumes" . }}
volumes:
  {{- . | trim | nindent 2 }}
{{- end }}
{{- end }}

{{/* joined are the volumes of configs by their paths, as JSON. */}}
{{- define "nvsentinel.joined" -}}
{{- $volumes := dict -}}
{{- range .configs }}{{ $_ := set $volumes .path (append (get $volumes .path | default list) .name) }}{{ end -}}
{{- toJson $volumes -}}
{{- end }}

{{- define "nvsentinel.mounts" -}}
{{- if .joined }}
{{- range $path, $names := include "nvsentinel.joined" . | fromJson }}
- {name: {{ base $path }}, mountPath: {{ $path }}, readOnly: true}
{{- end }}
{{- else }}
{{- range .configs }}
- {name: {{ .volume }}, mountPath: {{ .path }}, readOnly: true}
{{- end }}
{{- end }}
{{- if .store }}
- {name: store, mountPath: /etc/nvsentinel/store, readOnly: true}
{{- if .root.Values.store.tlsSecretName }}
- {name: store-tls, mountPath: /etc/nvsentinel/store-tls, readOnly: true}
{{- end }}
{{- end }}
{{- if .publisher }}
# Connecting to a socket writes nothing.
- {name: connector, mountPath: /var/run/nvsentinel, readOnly: true}
- {name: token, mountPath: /var/run/secrets/nvsentinel, readOnly: true}
{{- end }}
{{- with concat (.mounts | default list) (.values.extraVolumeMounts | default list) }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "nvsentinel.volumes" -}}
{{- if .joined }}
{{- range $path, $names := include "nvsentinel.joined" . | fromJson }}
- name: {{ base $path }}
  projected:
    sources:
      {{- range $names }}
      - configMap: {name: {{ . }}}
      {{- end }}
{{- end }}
{{- else }}
{{- range .configs }}
- name: {{ .volume }}
  configMap: {name: {{ .name }}}
{{- end }}
{{- end }}
{{- if .store }}
- name: store
  secret:
    secretName: {{ .storeSecret | default .root.Values.store.secretName }}
    items: [{key: {{ .root.Values.store.secretKey }}, path: {{ .root.Values.store.secretKey }}}]
{{- with .root.Values.store.tlsSecretName }}
- name: store-tls
  secret: {secretName: {{ . }}}
{{- end }}
{{- end }}
{{- if .publisher }}
# The folder, not the socket: the connector makes a new socket when it starts.
- name: connector
  hostPath: {path: {{ .root.Values.hostPaths.run }}, type: {{ ternary "DirectoryOrCreate" "Directory" (.onNode | default false) }}}
- name: token
  projected:
    sources:
      - serviceAccountToken:
          audience: platform-connector.nvsentinel.nvidia.com
          expirationSeconds: 3600
          path: token
{{- end }}
{{- with concat (.volumes | default list) (.values.extraVolumes | default list) }}
{{ toYaml . }}
{{- end }}
{{- end }}
