package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/platform-connectors/authz"
)

// pluginArgs are the janitor's arguments about plugins.
func pluginArgs(pod corev1.PodTemplateSpec) []string {
	return slices.DeleteFunc(slices.Clone(pod.Spec.Containers[0].Args), func(a string) bool { return !strings.Contains(a, "csp-plugin") })
}

// TestTwoPlugins: each controller has the one that the values name, under a Service
// and a certificate of its own, and shows it a token for it.
func TestTwoPlugins(t *testing.T) {
	objects := rendered(t, file("two"))
	pods := workloads(t, objects)
	want := []string{
		"--reboot-csp-plugin-host=csp-plugin-aws." + release + ".svc:9090",
		"--reboot-csp-plugin-token-file=/var/run/secrets/csp-plugin/reboot-token",
		"--reboot-csp-plugin-ca-file=/etc/csp-plugin/reboot-ca/ca.crt",
		"--terminate-csp-plugin-host=csp-plugin-kwok." + release + ".svc:9090",
		"--terminate-csp-plugin-token-file=/var/run/secrets/csp-plugin/terminate-token",
		"--terminate-csp-plugin-ca-file=/etc/csp-plugin/terminate-ca/ca.crt",
	}
	if diff := cmp.Diff(want, pluginArgs(pods["janitor"])); diff != "" {
		t.Errorf("the janitor's plugins (-want +got):\n%s", diff)
	}
	services := map[string]string{}
	for _, o := range objects {
		if s := o; s.GetKind() == "Service" && strings.HasPrefix(s.GetName(), "csp-plugin") {
			services[s.GetName()] = as[corev1.Service](t, s).Spec.Selector["app.kubernetes.io/name"]
		}
	}
	if diff := cmp.Diff(map[string]string{"csp-plugin-aws": "csp-plugin-aws", "csp-plugin-kwok": "csp-plugin-kwok"}, services); diff != "" {
		t.Errorf("Services and their pods (-want +got):\n%s", diff)
	}
	for workload, secret := range map[string]string{"csp-plugin-aws": "csp-plugin-tls", "csp-plugin-kwok": "kwok-tls"} {
		if got := pods[workload].Spec.Volumes[0].Secret.SecretName; got != secret {
			t.Errorf("%s shows the certificate of %s, want %s", workload, got, secret)
		}
	}
}

// TestAPluginBesideTheJanitor: it is a container of the janitor's pod, is spoken to
// on a socket that both mount, and is shown no other token than the pod's own; one
// elsewhere is shown one for its audience.
func TestAPluginBesideTheJanitor(t *testing.T) {
	objects := rendered(t, file("sidecar"))
	pod := workloads(t, objects)["janitor"]
	want := []string{
		"--csp-plugin-host=unix:///run/csp-plugin/socket",
		"--terminate-csp-plugin-host=terminator.acme.svc:9090",
		"--terminate-csp-plugin-token-file=/var/run/secrets/csp-plugin/terminate-token",
		"--terminate-csp-plugin-ca-file=/etc/csp-plugin/terminate-ca/ca.crt",
	}
	if diff := cmp.Diff(want, pluginArgs(pod)); diff != "" {
		t.Errorf("the janitor's plugins (-want +got):\n%s", diff)
	}
	if len(pod.Spec.Containers) != 2 || pod.Spec.Containers[1].Name != "plugin" {
		t.Errorf("the pod has the containers %v", pod.Spec.Containers)
	}
	socket := func(c corev1.Container) bool {
		return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "csp-plugin-socket" && !m.ReadOnly })
	}
	if !socket(pod.Spec.Containers[0]) || !socket(pod.Spec.Containers[1]) {
		t.Error("the socket is not mounted by both")
	}
	if got := slices.Collect(maps.Keys(texts(t, objects)["janitor"])); !slices.Equal(got, []string{"janitor.yaml"}) {
		t.Errorf("the janitor's file is %v, want YAML under its name", got)
	}
	if got := texts(t, objects)["platform-connectors"]["connector.toml"]; !strings.Contains(got, "name = \"gpu-health-monitor\"\nlegacyStrategyNumbers = true\n") {
		t.Errorf("the connectors are told\n%s", got)
	}
	text := "rebootNodeController:\n  enabled: false\n"
	objects = rendered(t, file("own-plugin"), "--set-string", "janitor.config="+text, "--set=janitor.terminateNodeController.enabled=false")
	if got := texts(t, objects)["janitor"]["janitor.yaml"]; strings.TrimSpace(got) != strings.TrimSpace(text) {
		t.Errorf("YAML as a text becomes %q", got)
	}
	if args := workloads(t, objects)["janitor"].Spec.Containers[0].Args; !slices.Contains(args, "--terminate-enabled=false") || slices.Contains(args, "--reboot-enabled=false") {
		t.Errorf("a controller that is switched off: %v", args)
	}
}

// TestManifestsOfAPluginOfOnesOwn: a real API server accepts them, and the values beside them
// give the janitor the plugin's address.
func TestManifestsOfAPluginOfOnesOwn(t *testing.T) {
	deploy := filepath.Join(root, "examples/deploy")
	text, err := os.ReadFile(filepath.Join(deploy, "rack-plugin.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := localcluster.ForTest(t, localcluster.Options{}).Apply(t.Context(), bytes.NewReader(text)); err != nil {
		t.Error(err)
	}
	want := []string{
		"--csp-plugin-host=rack-plugin.rack-plugin.svc:9090",
		"--csp-plugin-token-file=/var/run/secrets/csp-plugin/token",
		"--csp-plugin-ca-file=/etc/csp-plugin/ca/ca.crt",
	}
	pods := workloads(t, rendered(t, file("store"), "--values="+filepath.Join(deploy, "values.yaml")))
	if diff := cmp.Diff(want, pluginArgs(pods["janitor"])); diff != "" {
		t.Errorf("the janitor's plugin (-want +got):\n%s", diff)
	}
	for _, part := range []string{"--caller=system:serviceaccount:nvsentinel:janitor", "--audience=csp-plugin", "--tls-cert-file=", "name: rack-plugin, namespace: rack-plugin"} {
		if !strings.Contains(string(text), part) {
			t.Errorf("the manifest has no %s", part)
		}
	}
	decode(t, string(text))
}

// TestAgentsThatConnectorsKnow without a file of theirs are those that the chart lists
// before a publisher is enabled.
func TestAgentsThatConnectorsKnow(t *testing.T) {
	files := texts(t, rendered(t, file("nothing"), "--set=platformConnectors.enabled=true,store.secretName=nvsentinel-store"))
	var want, got []string
	for _, m := range regexp.MustCompile(`(?m)^name = (.*)\nchecks = (.*)$`).FindAllStringSubmatch(files["platform-connectors"]["connector.toml"], -1) {
		want = append(want, m[1]+m[2])
	}
	for _, a := range authz.DefaultAgents() {
		checks, err := json.Marshal(a.Checks)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%q%s", a.Name, checks))
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))); diff != "" {
		t.Errorf("authz.DefaultAgents differs from templates/_services.tpl (-chart +connectors):\n%s", diff)
	}
}
