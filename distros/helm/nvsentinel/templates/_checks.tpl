{{/* What no schema can say. */}}

{{/* checkValues refuses, by name and all at once, values that were removed, those of the earlier NVSentinel that the
schema lets through, and keys of `global` that nothing here reads. */}}
{{- define "nvsentinel.checkValues" -}}
{{- $removed := list -}}{{- $earlier := list -}}{{- $unknown := list -}}
{{- range list "upstream" "storeSecretName" "storeConnections" -}}
{{- if hasKey $.Values.platformConnectors . }}{{ $removed = append $removed (printf "platformConnectors.%s was removed: connectors use platformConnectorsGateway, and nodes have no store credentials. Remove the key from your values" .) }}{{ end -}}
{{- end -}}
{{- range $key, $value := .Values -}}
{{- $now := get (dict "platformConnector" "platformConnectors" "socketPath" "hostPaths.run" "postgresql" "store.secretName" "mongodb-store" "store.secretName" "rebootNodeController" "janitor.rebootNodeController" "terminateNodeController" "janitor.terminateNodeController") $key -}}
{{- if and (not $now) (contains "-" $key) (hasKey $.Values ($key | camelcase | untitle)) }}{{ $now = $key | camelcase | untitle }}{{ end -}}
{{- if $now }}{{ $earlier = append $earlier (printf "%s: renamed to %s" $key $now) -}}
{{- else if regexMatch (include "nvsentinel.earlierValues" $) $key }}{{ $earlier = append $earlier (printf "%s: it was removed or moved" $key) }}{{ end -}}
{{- end -}}
{{- range $name, $now := dict "janitor.replicaCount" "renamed to janitor.replicas" "janitor.csp" "plugins have their own values, such as cspPluginAws" "janitor.serviceAccount" "cloud permissions are configured in the plugin" "podMonitor.metricsPath" "the path is always /metrics" -}}
{{- $at := splitList "." $name -}}
{{- if hasKey (get $.Values (first $at) | default dict) (last $at) }}{{ $earlier = append $earlier (printf "%s: %s" $name $now) }}{{ end -}}
{{- end -}}
{{- $known := list "dryRun" "imageRegistry" "image" "imagePullSecrets" "nodeSelector" "tolerations" "affinity" "systemNodeSelector" "systemNodeTolerations" "cspPluginHost" -}}
{{- range $key, $value := .Values.global | default dict -}}
{{- if not (has $key $known) -}}
{{- if eq (regexReplaceAll "[-_]" $key "" | lower) "dryrun" }}{{ $unknown = append $unknown (printf "global.%s: use global.dryRun" $key) }}
{{- else if not $.Chart.IsRoot }}{{/* it may be of the parent chart */}}
{{- else if hasKey $.Values $key }}{{ $earlier = append $earlier (printf "global.%s: moved to %s" $key $key) }}
{{- else }}{{ $unknown = append $unknown (printf "global.%s: unknown key, use one of %s" $key (join ", " $known)) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if $removed }}{{ $removed = append $removed "docs/tasks/upgrade.md, \"Changes that need your action\", lists the other steps" }}{{ end -}}
{{- if $earlier }}{{ $earlier = append $earlier "These are values of the earlier NVSentinel: nvsentinel convert-config values.yaml converts them (docs/tasks/migrate-from-nvsentinel.md)" }}{{ end -}}
{{- if and $unknown (not $earlier) }}{{ $unknown = append $unknown "For values of the earlier NVSentinel: nvsentinel convert-config values.yaml prints the replacements" }}{{ end -}}
{{- with concat $removed $earlier $unknown }}{{ fail (printf "\n\n%s\n" (join "\n" .)) }}{{ end -}}
{{- end }}

{{/* earlierValues are the values of the earlier NVSentinel that have no other name here; values.schema.json lets them
through, so that this can say so. */}}
{{- define "nvsentinel.earlierValues" -}}
^(incluster-file-server|janitor-provider|k8s-datastore|lifecycle-manager|nodeConditionCleanup|preflight|slurm-drain-monitor)$
{{- end }}

{{/* clusterAgents is not empty if a publisher speaks for all nodes. */}}
{{- define "nvsentinel.clusterAgents" -}}
{{- range include "nvsentinel.clusterPublishers" . | fromJsonArray }}{{ if .enabled }}yes{{ end }}{{ end -}}
{{- range .Values.platformConnectors.publishers }}{{ if .clusterWide }}yes{{ end }}{{ end -}}
{{- end }}

{{/* requireStore stops where a service has no store. */}}
{{- define "nvsentinel.requireStore" -}}
{{- if not .root.Values.store.secretName }}
{{- fail (printf "\n\nstore.secretName is empty, and %s requires a store that every node can reach: create a Secret in namespace %s with the address of a PostgreSQL or MongoDB database in key %s, and set store.secretName to its name. SQLite works only on one host. For a trial, set trialPostgresql.enabled=true, which installs a database that is not for production.\n" .name .root.Values.namespace .root.Values.store.secretKey) }}
{{- end }}
{{- end }}

{{/* requireMaintenance stops where csp-health-monitor does not know whom to ask and where to keep it. */}}
{{- define "nvsentinel.requireMaintenance" -}}
{{- $problems := list -}}
{{- with .Values.cspHealthMonitor -}}
{{- if not .provider }}{{ $problems = append $problems "cspHealthMonitor.provider is empty: set aws, azure, gcp or oci" }}{{ end -}}
{{- if not .clusterName }}{{ $problems = append $problems "cspHealthMonitor.clusterName is empty: set the name of this cluster in stored maintenances" }}{{ end -}}
{{- if not .storeSecretName }}{{ $problems = append $problems (printf "cspHealthMonitor.storeSecretName is empty: create a Secret in namespace %s with the store address in key %s, for an account limited to maintenances (docs/tasks/choose-a-store.md), and set its name. Do not use store.secretName, whose account can rewrite the records" $.Values.namespace $.Values.store.secretKey) }}{{ end -}}
{{- end -}}
{{- if $problems }}{{ fail (printf "\n\n%s\n" (join "\n" $problems)) }}{{ end -}}
{{- end }}

{{/* requireConnector stops where a publisher has nobody to speak to. */}}
{{- define "nvsentinel.requireConnector" -}}
{{- if not .root.Values.platformConnectors.enabled }}
{{- fail (printf "\n\nplatformConnectors.enabled is false, and %s requires the connector of its node: enable it, or disable %s\n" .name .name) }}
{{- end }}
{{- end }}

{{/* metadataFolder is the folder of the GPU metadata file. The collector, which loads the driver's library as root,
may write all of it, and the monitors read all of it: it holds nobody's state, and nobody's state holds it. */}}
{{- define "nvsentinel.metadataFolder" -}}
{{- $p := .Values.hostPaths -}}{{- $folder := dir $p.metadataFile -}}{{- $all := printf "%s/" (trimSuffix "/" $folder) -}}
{{- $shared := "" -}}
{{- range list "run" "state" }}{{ if hasPrefix $all (printf "%s/" (get $p . | clean)) }}{{ $shared = printf "hostPaths.%s (%s)" . (get $p .) }}{{ end }}{{ end -}}
{{- range prepend (include "nvsentinel.nodeMonitorNames" . | fromJsonArray) "platform-connector" -}}
{{- $state := printf "%s/%s" (clean $p.state) . -}}
{{- if hasPrefix (printf "%s/" $state) $all }}{{ $shared = printf "the state of a service (%s)" $state }}{{ end -}}
{{- end -}}
{{- if $shared }}{{ fail (printf "\n\nhostPaths.metadataFile is %s, and %s would be accessible to all services that write or read that file: move it to its own directory, such as /var/lib/nvsentinel/metadata/gpu_metadata.json, or change hostPaths.state (docs/tasks/migrate-from-nvsentinel.md#files-and-sockets)\n" $p.metadataFile $shared) }}{{ end -}}
{{ $folder }}
{{- end }}

{{/* dry is "true" where a service decides and does not act: its own value says so, or says nothing, or
global.dryRun says so. It takes a dict: root and values. */}}
{{- define "nvsentinel.dry" -}}
{{- $own := dig "dryRun" true .values -}}
{{- if or (.root.Values.global | default dict).dryRun (ne (toString $own) "false") }}true{{ else }}false{{ end -}}
{{- end }}

{{/* strategy is that of a monitor whose default is PROCESS, where a value taken away is the default. */}}
{{- define "nvsentinel.strategy" -}}
{{ .processingStrategy | default "PROCESS" }}
{{- end }}

{{/* gpuStrategy is that of gpu-health-monitor. Through a port that any pod may reach nobody decides about repairs:
there nothing makes PROCESS of an event, neither its value, nor a check's own in its file, nor an argument. */}}
{{- define "nvsentinel.gpuStrategy" -}}
{{- $m := .Values.gpuHealthMonitor -}}{{- $strategy := $m.processingStrategy | default "PERSIST_ONLY" -}}
{{- $open := and (eq $m.dcgm.mode "remote") (not (hasPrefix "unix://" $m.dcgm.address)) (not $m.dcgm.trusted) -}}
{{- $file := regexMatch `(?m)^[^#\n]*processingStrategy["']?\s*=\s*["']+PROCESS["']` ($m.config | default "") -}}
{{- $argument := regexMatch `(?m)^--?processing-?[sS]trategy=PROCESS$` ($m.extraArgs | default list | join "\n") -}}
{{- if and $open (or (eq $strategy "PROCESS") $file $argument) -}}
{{- $where := ternary "config" (ternary "extraArgs" "processingStrategy" $argument) $file -}}
{{- fail (printf "\n\ngpuHealthMonitor.%s is PROCESS, and the DCGM host engine is at %s, a port without authentication: any Pod that reaches it can inject a fault and cause a reboot of the node. Restrict access to the port, for example with a NetworkPolicy (docs/concepts/security.md#the-port-of-dcgm), and confirm it with gpuHealthMonitor.dcgm.trusted=true. Alternatively set dcgm.address to a socket of the node (unix://...), set dcgm.mode to embedded, or use PERSIST_ONLY\n" $where $m.dcgm.address) -}}
{{- end -}}
{{ $strategy }}
{{- end }}

{{/* What carries repairs out has no dry run of its own: with global.dryRun it is not there. */}}
{{- define "nvsentinel.janitorEnabled" -}}
{{- if and .Values.janitor.enabled (not (.Values.global | default dict).dryRun) }}yes{{ end -}}
{{- end }}

{{- define "nvsentinel.repairChainEnabled" -}}
{{- if and .Values.repairChain.enabled (not (.Values.global | default dict).dryRun) }}yes{{ end -}}
{{- end }}

{{/* checkRepairKinds refuses kinds of steps by which repair-chain could change the suite itself, or what Kubernetes
has for the whole cluster: Nodes, roles, the Secrets and the emergency brake of the release's namespace. */}}
{{- define "nvsentinel.checkRepairKinds" -}}
{{- $problems := list -}}
{{- range $i, $kind := .Values.repairChain.kinds -}}
{{- $at := printf "repairChain.kinds[%d], %s:" $i (printf "%s.%s" .resource .apiGroup | trimSuffix ".") -}}
{{- $ours := regexMatch `^[^.]*$|\.k8s\.io$` .apiGroup -}}
{{- if eq .apiGroup "nvsentinel.dgxc.nvidia.com" -}}
{{- $problems = append $problems (printf "%s steps must not create templates, chains or runs" $at) -}}
{{- else if eq (empty .namespaces) (not .clusterWide) -}}
{{- $problems = append $problems (printf "%s set either the namespaces of its objects or clusterWide: true" $at) -}}
{{- else if and $ours (or .clusterWide (has $.Values.namespace .namespaces)) -}}
{{- $problems = append $problems (printf "%s built-in Kubernetes kinds must not use the release namespace, %s, where Jobs are already allowed" $at $.Values.namespace) -}}
{{- end -}}
{{- end -}}
{{- if $problems }}{{ fail (printf "\n\n%s\n" (join "\n" $problems)) }}{{ end -}}
{{- end }}

{{- define "nvsentinel.kwokEnabled" -}}
{{- if and .Values.cspPluginKwok.enabled (not (.Values.global | default dict).dryRun) }}yes{{ end -}}
{{- end }}

{{- define "nvsentinel.nodePluginEnabled" -}}
{{- if and .Values.cspPluginNode.enabled (not (.Values.global | default dict).dryRun) }}yes{{ end -}}
{{- end }}

{{/* pluginKeys are the plugins of this chart with the keys of their values, as JSON. */}}
{{- define "nvsentinel.pluginKeys" -}}
{{- dict "csp-plugin-aws" "cspPluginAws" "csp-plugin-azure" "cspPluginAzure" "csp-plugin-gcp" "cspPluginGcp" "csp-plugin-kwok" "cspPluginKwok"
  "csp-plugin-node" "cspPluginNode" "csp-plugin-oci" "cspPluginOci" | toJson -}}
{{- end }}

{{/* pluginsEnabled are the names of those that the values enable, as JSON. */}}
{{- define "nvsentinel.pluginsEnabled" -}}
{{- $root := . -}}{{- $names := list -}}
{{- range $name, $key := include "nvsentinel.pluginKeys" . | fromJson }}
{{- if (get $root.Values $key).enabled }}{{ $names = append $names $name }}{{ end -}}
{{- end }}
{{- toJson $names -}}
{{- end }}

{{/* pluginsThere are the names of those that are installed, as JSON; cloudPlugins are those of them that speak
to the API of a cloud. */}}
{{- define "nvsentinel.pluginsThere" -}}
{{- if (.Values.global | default dict).dryRun }}[]{{ else }}{{ include "nvsentinel.pluginsEnabled" . }}{{ end -}}
{{- end }}

{{- define "nvsentinel.cloudPlugins" -}}
{{- without (include "nvsentinel.pluginsThere" . | fromJsonArray) "csp-plugin-kwok" "csp-plugin-node" | toJson -}}
{{- end }}

{{/* pluginService is the name of the Service of a plugin of this chart. */}}
{{- define "nvsentinel.pluginService" -}}
{{ ternary .name "csp-plugin" (gt (len (include "nvsentinel.pluginsEnabled" .root | fromJsonArray)) 1) }}
{{- end }}

{{/* pluginTls is the Secret of the certificate of a plugin of this chart. */}}
{{- define "nvsentinel.pluginTls" -}}
{{- $own := get .root.Values (get (include "nvsentinel.pluginKeys" .root | fromJson) .name) -}}
{{ $own.tlsSecretName | default .root.Values.cspPluginTls.secretName }}
{{- end }}

{{/* plugin is what is known of the plugin that a value names, as JSON: a plugin of this chart by its name, or
a host. It takes a dict: root, host, key (of the value), prefix and own. */}}
{{- define "nvsentinel.plugin" -}}
{{- $v := .root.Values -}}
{{- $out := dict "prefix" .prefix "own" .own "host" .host "default" "" -}}
{{- if hasKey (include "nvsentinel.pluginKeys" .root | fromJson) .host -}}
{{- if not (has .host (include "nvsentinel.pluginsEnabled" .root | fromJsonArray)) }}{{ fail (printf "\n\n%s is %s, and this plugin of the chart is not enabled: enable it or name another plugin\n" .key .host) }}{{ end -}}
{{- $_ := set $out "own" (merge (dict "audience" ($v.janitor.cspPlugin.audience | default "csp-plugin")) (.own | default dict)) -}}
{{- $_ := set $out "default" (include "nvsentinel.pluginTls" (dict "root" .root "name" .host)) -}}
{{- $_ := set $out "host" (printf "%s.%s.svc:9090" (include "nvsentinel.pluginService" (dict "root" .root "name" .host)) .root.Values.namespace) -}}
{{- end -}}
{{- toJson $out -}}
{{- end }}

{{/* plugins are those that the janitor speaks to, as JSON: the one of all controllers, if there is one, and
those of single controllers. */}}
{{- define "nvsentinel.plugins" -}}
{{- $v := .Values -}}{{- $j := $v.janitor -}}{{- $out := list -}}
{{- $host := $j.cspPlugin.host | default (.Values.global | default dict).cspPluginHost -}}
{{- $enabled := include "nvsentinel.pluginsEnabled" . | fromJsonArray -}}
{{- if and (not $host) (eq (len $enabled) 1) }}{{ $host = first $enabled }}{{ end -}}
{{- if $host }}{{ $out = append $out (include "nvsentinel.plugin" (dict "root" . "prefix" "" "host" $host "own" $j.cspPlugin "key" "janitor.cspPlugin.host") | fromJson) }}{{ end -}}
{{- range $prefix, $key := dict "reboot-" "rebootNodeController" "terminate-" "terminateNodeController" -}}
{{- $own := get $j $key | default dict -}}
{{- if ne (toString (dig "enabled" true $own)) "false" -}}
{{- if $own.cspPluginHost -}}
{{- $out = append $out (include "nvsentinel.plugin" (dict "root" $ "prefix" $prefix "host" $own.cspPluginHost "own" ($own.cspPlugin | default dict) "key" (printf "janitor.%s.cspPluginHost" $key)) | fromJson) -}}
{{- else if and (not $host) $enabled -}}
{{- fail (printf "\n\nmore than one plugin of this chart is enabled: set janitor.%s.cspPluginHost to one of them (%s), or set janitor.cspPlugin.host to use one for all\n" $key (join ", " $enabled)) -}}
{{- else if not $host -}}
{{- fail "\n\njanitor.enabled is true and no plugin is enabled: enable one of this chart (such as cspPluginAws), or set janitor.cspPlugin.host to your own (docs/tasks/write-a-plugin.md)\n" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end }}

{{/* policies are those of the object monitor: its own, and behind them the one about the labels of labeler, unless
they have one of that name. */}}
{{- define "nvsentinel.policies" -}}
{{- $own := .Values.kubernetesObjectMonitor.policies -}}{{- $l := .Values.labeler -}}
{{- $own -}}
{{- if and $l.enabled $l.gpuCountMismatch.enabled (not (has "GpuCountMismatch" (include "nvsentinel.names" $own | fromJsonArray))) }}

{{ .Files.Get "manifests/gpu-count-mismatch.toml" | replace "\"PERSIST_ONLY\"" (toJson ($l.gpuCountMismatch.processingStrategy | default "PERSIST_ONLY")) -}}
{{- end -}}
{{- end }}

{{/* names are those that a TOML file gives its policies or rules, as JSON. */}}
{{- define "nvsentinel.names" -}}
{{- $names := list -}}
{{- range regexFindAll `(?m)^[ \t]*name[ \t]*=[ \t]*("[^"\n]+"|'[^'\n]+')` . -1 }}
{{- $names = append $names (regexReplaceAll `^[^"']*["'](.*)["']$` . "$1") }}
{{- end }}
{{- toJson ($names | uniq) -}}
{{- end }}
