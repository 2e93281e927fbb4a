package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// everything lists all objects that may stay behind, and what is on the Node.
const everything = `for kind in $(kubectl api-resources --verbs=list -o name | grep -v -E '^(events|componentstatuses)' | sort); do
  kubectl get "$kind" -A --ignore-not-found --no-headers -o custom-columns=A:.kind,B:.metadata.namespace,C:.metadata.name | tr -s ' ' | sort
done
kubectl get node ` + nodeName + ` -o go-template='{{range $k, $v := .metadata.labels}}label {{$k}}={{$v}}
{{end}}{{range $k, $v := .metadata.annotations}}annotation {{$k}}={{$v}}
{{end}}{{range .spec.taints}}taint {{.key}}
{{end}}{{range .status.conditions}}condition {{.type}}
{{end}}{{if .spec.unschedulable}}cordoned
{{end}}'`

// inventory is what is in the cluster before the installation.
func (j *journey) inventory(ctx context.Context) (string, error) {
	if _, err := j.nodeIs(ctx, time.Minute, "ready", nodeReady); err != nil {
		return "", err
	}
	// The kubelet makes its Lease a while after the node is Ready.
	err := until(ctx, time.Minute, func(ctx context.Context) error {
		_, err := j.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, nodeName, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return "", err
	}
	out, err := j.run(ctx, everything)
	j.before = strings.Split(strings.TrimSpace(out), "\n")
	return fmt.Sprintf("%d objects and marks", len(j.before)), err
}

// leave uninstalls the release while nothing is wrong, lists what is left, removes it,
// and finds nothing that was not there before but what a person has made.
func (j *journey) leave(ctx context.Context) (string, error) {
	if _, err := j.run(ctx, "helm uninstall nvsentinel -n "+namespace+" --wait --timeout 2m"); err != nil {
		return "", err
	}
	_, err := j.run(ctx, "kubectl delete -f user.yaml -f examples/deploy/rack-plugin.yaml --ignore-not-found --wait")
	if err != nil {
		return "", err
	}
	list, err := j.run(ctx, "nvsentinel uninstall --crds")
	if err != nil {
		return "", err
	}
	// Leases end by themselves: who held them lost the right to let them go.
	began := time.Now()
	err = until(ctx, 2*time.Minute, func(ctx context.Context) error {
		_, err := j.run(ctx, "nvsentinel uninstall --crds --yes")
		return err
	})
	if err != nil {
		return "", err
	}
	waited := time.Since(began)
	folders, err := filepath.Glob("/var/lib/nvsentinel/*")
	if err != nil {
		return "", err
	}
	left, err := j.left(ctx)
	j.log("left: %s; on the node %s", strings.Join(left, ", "), strings.Join(folders, ", "))
	return fmt.Sprintf("%d things listed and removed, %.0f s later since leases had to end; left are %d objects that a person made, and %d folders of the node",
		strings.Count(list, "  remove "), waited.Seconds(), len(left), len(folders)), err
}

// left is what was not there before, of which only what a person made may stay. What is
// being deleted has a minute; a kind whose definition has just gone is named for a while, and
// cannot be listed.
func (j *journey) left(ctx context.Context) (left []string, err error) {
	err = until(ctx, time.Minute, func(ctx context.Context) error {
		out, err := j.run(ctx, everything)
		left = nil
		for line := range strings.Lines(out) {
			if line = strings.TrimSpace(line); !slices.Contains(j.before, line) {
				left = append(left, line)
			}
			if !slices.Contains(j.before, line) && !slices.Contains(persons, line) {
				err = errors.Join(err, fmt.Errorf("%s is left", line))
			}
		}
		return err
	})
	return left, err
}

// persons are the objects that a person made on the way, and what Kubernetes makes in
// every namespace.
var persons = []string{
	"Namespace <none> nvsentinel", "ServiceAccount nvsentinel default", "ConfigMap nvsentinel kube-root-ca.crt",
	"Secret nvsentinel nvsentinel-store", "Secret nvsentinel store-ca", "Secret nvsentinel rack-plugin-ca",
	"Pod nvsentinel nvsentinel-test", // that of helm test, which Helm keeps for its log
}

// again installs what was uninstalled, from a registry, by the page's commands.
func (j *journey) again(ctx context.Context) (string, error) {
	lines, err := commands(j.page, "helm push")
	if err != nil {
		return "", err
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "helm install") {
			line += " --set store.tlsSecretName=store-ca" + j.profile() + " --wait --timeout 4m"
		}
		if _, err := j.run(ctx, line); err != nil {
			return "", err
		}
	}
	return j.ready(ctx)
}
