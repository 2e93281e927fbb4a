package chart

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// clusterWide are the kinds that are in no namespace.
var clusterWide = []string{
	"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "FlowSchema", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "Namespace", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}

// TestNamespaceOfTheRelease: every object is in it, and no text means another.
func TestNamespaceOfTheRelease(t *testing.T) {
	// What the suite's own namespace looks like where a name is one.
	other := regexp.MustCompile(`namespace: "?nvsentinel\b|serviceaccount:nvsentinel:|\.nvsentinel\.svc|namespace=nvsentinel\b|\^\(nvsentinel\b`)
	for _, name := range values {
		t.Run(name, func(t *testing.T) {
			text, err := template(t, file(name))
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range other.FindAllString(text, -1) {
				t.Errorf("the rendering has %q", found)
			}
			for _, o := range decode(t, text) {
				want := release
				if slices.Contains(clusterWide, o.GetKind()) {
					want = ""
				}
				if elsewhere := []string{"default", "medik8s-leases", "kube-node-lease", "gpus"}; strings.HasPrefix(o.GetKind(), "Role") && slices.Contains(elsewhere, o.GetNamespace()) {
					continue // where Events about Nodes, the leases of nodes, those of kubelets and the pods of the GPU operator are
				}
				if o.GetNamespace() != want {
					t.Errorf("%s %s is in namespace %q, want %q", o.GetKind(), o.GetName(), o.GetNamespace(), want)
				}
			}
		})
	}
}

// secrets are those that the values name; the chart makes that of the gateway, where
// they name none.
var secrets = []string{"nvsentinel-store", "gateway-tls", "store-tls", "receiver", "csp-plugin-tls", "janitor-tls", "rack-ca", "kwok-tls", "maintenance-store"}

// TestEverythingNamedIsThere: what a pod, a binding or a Service refers to is in
// the same rendering.
func TestEverythingNamedIsThere(t *testing.T) {
	for _, name := range values {
		t.Run(name, func(t *testing.T) {
			objects := rendered(t, file(name))
			there := map[string]bool{}
			for _, o := range objects {
				there[o.GetKind()+" "+o.GetName()] = true
				if slices.Contains([]string{"Deployment", "StatefulSet"}, o.GetKind()) {
					there["pods "+o.GetName()] = true
				}
			}
			for _, s := range secrets {
				there["Secret "+s] = true
			}
			there["ConfigMap gateway-ca"] = true
			there["Group gpu-operators"] = true // viewers: people are no objects
			for _, o := range objects {
				for _, ref := range references(o) {
					if !there[ref] {
						t.Errorf("%s %s names %s, which is not there", o.GetKind(), o.GetName(), ref)
					}
				}
			}
			accounts := map[string]bool{"nvsentinel-test": true} // that of helm test
			for workload, pod := range workloads(t, objects) {
				accounts[pod.Spec.ServiceAccountName] = true
				for _, problem := range problems(pod, there) {
					t.Errorf("%s: %s", workload, problem)
				}
			}
			for _, o := range objects {
				if o.GetKind() == "Role" {
					for _, rule := range as[rbacv1.Role](t, o).Rules {
						for _, name := range rule.ResourceNames {
							// In profile small a pod runs under it in this way.
							accounts[name] = accounts[name] || slices.Contains(rule.Verbs, "impersonate")
						}
					}
				}
			}
			for _, o := range objects {
				if o.GetKind() == "ServiceAccount" && !accounts[o.GetName()] {
					t.Errorf("no pod runs under account %s", o.GetName())
				}
			}
		})
	}
}

// references are what an object other than a workload names.
func references(o *unstructured.Unstructured) []string {
	var out []string
	role, _, _ := unstructured.NestedStringMap(o.Object, "roleRef")
	if role != nil {
		out = append(out, role["kind"]+" "+role["name"])
	}
	subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
	for _, s := range subjects {
		subject, ok := s.(map[string]any)
		if ok {
			out = append(out, fmt.Sprint(subject["kind"], " ", subject["name"]))
		}
	}
	selector, _, _ := unstructured.NestedStringMap(o.Object, "spec", "selector")
	if name, one := selector["app.kubernetes.io/name"]; o.GetKind() == "Service" && one {
		out = append(out, "pods "+name)
	}
	return out
}

// problems are what a pod names and does not have.
func problems(pod corev1.PodTemplateSpec, there map[string]bool) []string {
	var out []string
	need := func(what string) {
		if !there[what] {
			out = append(out, "no "+what)
		}
	}
	need("ServiceAccount " + pod.Spec.ServiceAccountName)
	volumes, mounted := map[string]bool{}, map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		if volumes[v.Name] {
			out = append(out, "volume "+v.Name+" is a duplicate")
		}
		volumes[v.Name] = true
		if v.ConfigMap != nil {
			need("ConfigMap " + v.ConfigMap.Name)
		}
		if v.Secret != nil {
			need("Secret " + v.Secret.SecretName)
		}
	}
	c := pod.Spec.Containers[0]
	for _, m := range c.VolumeMounts {
		if !volumes[m.Name] {
			out = append(out, "no volume "+m.Name)
		}
		if mounted[m.MountPath] {
			out = append(out, "two mounts at "+m.MountPath)
		}
		mounted[m.MountPath], volumes[m.Name] = true, false
	}
	for name, unused := range volumes {
		if unused {
			out = append(out, "volume "+name+" is not mounted")
		}
	}
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return intstr.FromString(p.Name) == probe.HTTPGet.Port }) {
			out = append(out, "no port "+probe.HTTPGet.Port.String())
		}
	}
	if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == "metrics" }) {
		out = append(out, "no port metrics")
	}
	return out
}

// TestImages: by default those of the release; the chart's registry and tag count more, and a
// workload's own values most.
func TestImages(t *testing.T) {
	want := map[string]string{
		"fault-quarantine":            "registry.example.com/gpu/nvidia/nvsentinel/nvsentinel-controller@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		"platform-connectors-cluster": "registry.example.com/gpu/nvidia/nvsentinel/platform-connectors@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		"kubernetes-object-monitor":   "mirror.example.com/monitors/objects:v2",
	}
	pods := workloads(t, rendered(t, file("all")))
	for workload, image := range want {
		if got := pods[workload].Spec.Containers[0].Image; got != image {
			t.Errorf("%s runs %s, want %s", workload, got, image)
		}
	}
	for want, flags := range map[string][]string{
		"ghcr.io/nvidia/nvsentinel/node-services:0.1.0":            nil,
		"mirror.example.com/nvidia/nvsentinel/node-services:0.1.0": {"--set=global.imageRegistry=mirror.example.com"},
	} {
		got := workloads(t, rendered(t, append(flags, file("small"), "--set=image.registry=")...))["platform-connectors"].Spec.Containers[0].Image
		if got != want {
			t.Errorf("with %v platform-connectors runs %s, want %s", flags, got, want)
		}
	}
}

// TestNoSecretInArguments: the store's address is a file; nothing of it is in an
// argument or a variable.
func TestNoSecretInArguments(t *testing.T) {
	for workload, pod := range workloads(t, rendered(t, file("all"))) {
		for _, e := range pod.Spec.Containers[0].Env {
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
				t.Errorf("%s has a secret in variable %s", workload, e.Name)
			}
		}
		for _, a := range pod.Spec.Containers[0].Args {
			if strings.HasPrefix(a, "--store=") && a != "--store=${file:/etc/nvsentinel/store/address}" {
				t.Errorf("%s is given %s", workload, a)
			}
		}
	}
}

// TestGatewayCertificate: what Helm makes is believed by the connectors' authority
// under the name by which they call, and they are not shown the key.
func TestGatewayCertificate(t *testing.T) {
	objects := rendered(t, file("store"))
	var tls corev1.Secret
	for _, o := range objects {
		if o.GetKind() == "Secret" {
			tls = as[corev1.Secret](t, o)
		}
	}
	block, _ := pem.Decode(tls.Data["tls.crt"])
	if block == nil || len(tls.Data["tls.key"]) == 0 {
		t.Fatalf("Secret %s has no certificate", tls.Name)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	authority := texts(t, objects)["platform-connectors-gateway-ca"]
	roots := x509.NewCertPool()
	if len(authority) != 1 || !roots.AppendCertsFromPEM([]byte(authority["ca.crt"])) {
		t.Fatalf("the authority is %v", authority)
	}
	args := workloads(t, objects)["platform-connectors"].Spec.Containers[0].Args
	name := "platform-connectors-gateway." + release + ".svc"
	if !slices.Contains(args, "--gateway="+name+":8443") {
		t.Errorf("connectors are given %v", args)
	}
	if _, err := cert.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
		t.Error(err)
	}
}

// TestNodesHoldNoSecret: what runs on every node mounts no Secret; anyone who is root
// there finds neither the store's address nor the gateway's key.
func TestNodesHoldNoSecret(t *testing.T) {
	for _, name := range values {
		for _, o := range rendered(t, file(name)) {
			if o.GetKind() != "DaemonSet" {
				continue
			}
			pod := workloads(t, []*unstructured.Unstructured{o})[o.GetName()]
			for _, v := range pod.Spec.Volumes {
				if v.Secret != nil {
					t.Errorf("%s: DaemonSet %s mounts Secret %s", name, o.GetName(), v.Secret.SecretName)
				}
			}
			for _, a := range pod.Spec.Containers[0].Args {
				if strings.HasPrefix(a, "--store=") {
					t.Errorf("%s: DaemonSet %s goes to the store itself", name, o.GetName())
				}
			}
		}
	}
}

// TestManifestsAreTheRendering: the manifests for those who use no Helm are what
// hack/chart.sh, which `make generate` runs, writes from the chart.
func TestManifestsAreTheRendering(t *testing.T) {
	path, err := buildHelm()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "hack/chart.sh"), dir)
	cmd.Env = append(os.Environ(), "HELM="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	written, err := fs.Glob(os.DirFS(dir), "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	inFolders, err := fs.Glob(os.DirFS(dir), "*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if written = append(written, inFolders...); len(written) != 4 {
		t.Fatalf("written: %v", written)
	}
	for _, name := range written {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(chartDir, "manifests", name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is stale: run hack/chart.sh (-rendering +file):\n%s", name, diff)
		}
	}
}
