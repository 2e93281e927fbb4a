package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// steps is what is shown, in its order.
var steps = []step{
	{"the cluster before", (*journey).inventory},
	{"install, by the commands of docs/get-started/install.md", (*journey).install},
	{"every pod Ready, nothing started twice", (*journey).ready},
	{"probes and metrics of every container", (*journey).probes},
	{"pods, images and memory", (*journey).footprint},
	{"tokens that the kubelet projects", (*journey).tokens},
	{"who runs as root, or may more", (*journey).privileges},
	{"helm test", (*journey).helmTest},
	{"stage watch: judged, and nothing done", (*journey).watch},
	{"the store, read with a kubeconfig alone", (*journey).reading},
	{"users' pods, and a plugin of one's own", (*journey).prepare},
	{"stage quarantine: line to cordon", (*journey).quarantine},
	{"upgrade while the only node is cordoned", (*journey).upgradeMeanwhile},
	{"the leader is killed", (*journey).leader},
	{"the store is away", (*journey).storeAway},
	{"stage drain: a budget holds it up", (*journey).drain},
	{"stage repair: reboot to release", (*journey).repair},
	{"a tenant's words in the kubelet's Event", (*journey).tenant},
	{"a reboot through the node itself", (*journey).throughNode},
	{"a reboot while the kubelet stands still", (*journey).unresponsive},
	{"a reset's Job, and no other, with the janitor's rights", (*journey).reset},
	{"policies.toml in effect", (*journey).policy},
	{"PERSIST_ONLY: stored, and nothing else", (*journey).strategy},
	{"rollback", (*journey).rollback},
	{"changed definitions", (*journey).definitions},
	{"uninstall, and what is left", (*journey).leave},
	{"install again, from a registry", (*journey).again},
}

// install runs the commands of the page, with the address of the store, and its authority as in
// the page's own section.
func (j *journey) install(ctx context.Context) (string, error) {
	lines, err := commands(j.page, "helm install nvsentinel distros/helm")
	if err != nil {
		return "", err
	}
	authority, err := commands(j.page, "create secret generic store-ca")
	if err != nil {
		return "", err
	}
	cert, err := j.cluster.Certificate(databaseName)
	if err != nil {
		return "", err
	}
	if err := j.write("ca.crt", string(cert.Authority)); err != nil {
		return "", err
	}
	_, query, _ := strings.Cut(strings.TrimSuffix(strings.TrimSpace(authority[1]), "' > address"), "?")
	if err := j.write("address", j.dsn+"?"+query); err != nil {
		return "", err
	}
	for i, line := range lines {
		if strings.HasPrefix(line, "helm install") {
			line += " --set store.tlsSecretName=store-ca" + j.profile() + " --wait --timeout 4m"
			j.values = []string{"--set image.registry=" + registry, "--set store.secretName=nvsentinel-store,store.tlsSecretName=store-ca" + j.profile()}
		}
		if _, err := j.run(ctx, line); err != nil {
			return "", err
		}
		if i == 0 {
			if _, err := j.run(ctx, authority[0]); err != nil {
				return "", err
			}
		}
	}
	return fmt.Sprintf("%d commands", len(lines)+1), nil
}

// profile is the argument of helm for the profile of the chart.
func (j *journey) profile() string {
	if j.Profile == "" {
		return ""
	}
	return " --set profile=" + j.Profile
}

// ready waits until all pods are, and wants no container to have begun again.
func (j *journey) ready(ctx context.Context) (string, error) {
	var pods []corev1.Pod
	err := until(ctx, 2*time.Minute, func(ctx context.Context) (err error) {
		pods, err = j.pods(ctx)
		for i := range pods {
			if why := unready(&pods[i]); why != "" {
				return fmt.Errorf("pod %s: %s", pods[i].Name, why)
			}
		}
		return err
	})
	restarts := 0
	for i := range pods {
		for _, c := range pods[i].Status.ContainerStatuses {
			restarts += int(c.RestartCount)
		}
	}
	if err == nil && restarts > 0 {
		err = fmt.Errorf("%d restarts", restarts)
	}
	return fmt.Sprintf("%d pods", len(pods)), err
}

// pods of the installation that are there to stay.
func (j *journey) pods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := j.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var out []corev1.Pod
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil && len(p.OwnerReferences) > 0 {
			out = append(out, p)
		}
	}
	return out, nil
}

// workloads are the names of those whose pods they are, and of the controllers that one
// process of profile small runs.
func (j *journey) workloads(ctx context.Context) ([]string, error) {
	deployments, err := j.client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	daemons, err := j.client.AppsV1().DaemonSets(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, d := range deployments.Items {
		out = append(out, d.Name)
		for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
			if list, ok := strings.CutPrefix(arg, "--controllers="); ok {
				out = append(out, strings.Split(list, ",")...)
			}
		}
	}
	for _, d := range daemons.Items {
		out = append(out, d.Name)
	}
	return out, nil
}

// nodeReady reports whether the kubelet has reported that the node is Ready.
func nodeReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// unready returns why a pod is not Ready; it is empty for one that is.
func unready(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			if c.Status == corev1.ConditionTrue {
				return ""
			}
			return c.Reason + " " + c.Message
		}
	}
	return string(p.Status.Phase)
}
