#!/usr/bin/env bash
# Renders the manifests for those who use no Helm from the chart:
# hack/chart.sh [folder]. HELM names a helm that is built already.
set -euo pipefail
cd "$(dirname "$0")/.."
chart=distros/helm/nvsentinel
out=${1:-$chart/manifests}
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
if [ -z "${HELM:-}" ]; then
	HELM=$bin/helm
	GOWORK=off go -C hack/tools build -o "$HELM" helm.sh/helm/v4/cmd/helm
fi
# render FILE TEMPLATE FLAG...: the comment on top of the file comes from stdin.
render() {
	local file=$out/$1 template=$2
	shift 2
	mkdir -p "$(dirname "$file")"
	{
		cat
		echo "# The chart's $template with $(printf '%q ' "$@" | sed 's/ $//'); hack/chart.sh writes this file."
		"$HELM" template nvsentinel "$chart" --namespace nvsentinel --show-only "$template" --set store.secretName=nvsentinel-store "$@" |
			# Without the names of templates, what is Helm's, and the empty lines before documents.
			awk '/^# Source: |^    (helm.sh\/chart|app.kubernetes.io\/(instance|managed-by|version)): /{next} /^$/{held=held "\n"; next} /^---$/{held=""} {printf "%s%s\n", held, $0; held=""}'
	} >"$file.new"
	mv "$file.new" "$file"
}
render names.yaml templates/names.yaml --set faultQuarantine.enabled=true <<'END'
# Names that the accounts of the suite may create: those that rbac.yaml lets them update.
# RBAC restricts by name who takes a Lease or writes a ConfigMap, and not who creates one.
# Without this policy, the first creator holds the Lease of another service, or switches
# the emergency stop. The API server evaluates this policy for the accounts named here only.
END
render kubernetes-object-monitor/deployment.yaml templates/kubernetes-object-monitor.yaml --set kubernetesObjectMonitor.replicas=2 <<'END'
# kubernetes-object-monitor: its policies, and two replicas of which one watches.
# Account and rights are in ../rbac.yaml; those of other policies are printed by
# `kubernetes-object-monitor rbac`. The connectors need the [[publishers.agent]]
# entry of docs/reference/monitors/kubernetes-object.md, because it publishes events about all nodes.
END
render deploy/janitor.yaml templates/janitor.yaml --set janitor.enabled=true,cspPluginAws.enabled=true <<'END'
# The janitor: two replicas, of which one leads. It shows the plugin a token that
# is meant for plugins alone, over TLS.
END
render deploy/csp-plugin-aws.yaml templates/csp-plugins.yaml --set cspPluginAws.enabled=true \
	--set-string 'cspPluginAws.serviceAccountAnnotations.eks\.amazonaws\.com/role-arn=arn:aws:iam::123456789012:role/nvsentinel-csp-plugin' <<'END'
# The plugin of EC2 instances: TLS with the certificate in the secret
# csp-plugin-tls (tls.crt, tls.key; its ca.crt is what the janitor trusts), and
# the janitor's service account as the only caller. Its own account is bound to
# the IAM role of docs/tasks/connect-a-cloud.md by what your cluster uses for that (the
# annotation here is that of EKS).
END
