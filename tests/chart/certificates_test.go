package chart

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvidia/nvsentinel/internal/localcluster"
)

const certManager = "--set=certManager.enabled=true,certManager.issuerRef.name=ours"

// TestCertManager makes a certificate for each Secret that a plugin has, under every
// name by which the janitor calls it, and one for the gateway where somebody gives the
// nodes its authority; Helm makes none then.
func TestCertManager(t *testing.T) {
	plugin := map[string][]any{"csp-plugin-tls": {"csp-plugin." + release + ".svc"}}
	for name, tc := range map[string]struct {
		with []string
		want map[string][]any // the names, by Secret
	}{
		"off":          {[]string{file("clouds")}, nil},
		"no plugin":    {[]string{file("store"), certManager}, nil},
		"one plugin":   {[]string{file("kwok"), certManager}, plugin},
		"two of them":  {[]string{file("two"), certManager}, map[string][]any{"csp-plugin-tls": {"csp-plugin-aws." + release + ".svc"}, "kwok-tls": {"csp-plugin-kwok." + release + ".svc"}}},
		"one for two":  {[]string{file("two"), certManager, "--set=cspPluginKwok.tlsSecretName="}, map[string][]any{"csp-plugin-tls": {"csp-plugin-aws." + release + ".svc", "csp-plugin-kwok." + release + ".svc"}}},
		"in a dry run": {[]string{file("kwok"), certManager, "--set=global.dryRun=true"}, nil},
		"the gateway": {
			[]string{file("store"), certManager, "--set=platformConnectorsGateway.tls.caConfigMapName=gateway-ca"},
			map[string][]any{"platform-connectors-gateway-cert": {"platform-connectors-gateway." + release + ".svc"}},
		},
		"the gateway's own": {[]string{file("store"), certManager, "--set=platformConnectorsGateway.tls.caConfigMapName=gateway-ca,platformConnectorsGateway.tls.secretName=own"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			objects := rendered(t, tc.with...)
			got, mounted := map[string][]any{}, map[string]bool{}
			for _, pod := range workloads(t, objects) {
				for _, v := range pod.Spec.Volumes {
					if v.Secret != nil {
						mounted[v.Secret.SecretName] = true
					}
				}
			}
			for _, o := range objects {
				if o.GetKind() != "Certificate" {
					continue
				}
				spec, _ := o.Object["spec"].(map[string]any)
				secret, _ := spec["secretName"].(string)
				got[secret], _ = spec["dnsNames"].([]any)
				if !mounted[secret] || find(objects, "Secret", secret) != nil {
					t.Errorf("Secret %s is mounted: %v, and must not be made by Helm", secret, mounted[secret])
				}
				if diff := cmp.Diff(map[string]any{"name": "ours", "kind": "Issuer", "group": "cert-manager.io"}, spec["issuerRef"]); diff != "" {
					t.Errorf("%s is issued by (-want +got):\n%s", secret, diff)
				}
			}
			if tc.want == nil {
				tc.want = map[string][]any{}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("certificates (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSelfSignedPlugin: what Helm makes for a plugin is what the plugin serves with and
// the janitor verifies by, under the name by which it calls.
func TestSelfSignedPlugin(t *testing.T) {
	if find(rendered(t, file("kwok")), "Secret", "csp-plugin-tls") != nil {
		t.Error("it is made although nobody asked for it")
	}
	objects := rendered(t, file("two"), "--set=cspPluginTls.selfSigned=true")
	for secret, host := range map[string]string{"csp-plugin-tls": "csp-plugin-aws." + release + ".svc", "kwok-tls": "csp-plugin-kwok." + release + ".svc"} {
		object := find(objects, "Secret", secret)
		if object == nil {
			t.Fatalf("no Secret %s", secret)
		}
		data := as[corev1.Secret](t, object).Data
		pair, err := tls.X509KeyPair(data["tls.crt"], data["tls.key"])
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(data["ca.crt"]) {
			t.Fatalf("Secret %s has no authority", secret)
		}
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots}); err != nil {
			t.Error(err)
		}
	}
}

// TestCertificatesThatCannotBe are refused.
func TestCertificatesThatCannotBe(t *testing.T) {
	for want, with := range map[string]string{
		"certManager.issuerRef.name is empty":                    "--set=certManager.enabled=true",
		"certManager.enabled and cspPluginTls.selfSigned are":    certManager + ",cspPluginTls.selfSigned=true",
		"platformConnectorsGateway.tls requires both or neither": "--set=platformConnectorsGateway.tls.caConfigMapName=gateway-ca",
	} {
		if _, err := template(t, file("kwok"), with); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", with, err, want)
		}
	}
}

// TestUpgradeKeepsCertificates: certificates that Helm made before are found in the cluster and
// stay as they are; one whose names have changed is made again.
func TestUpgradeKeepsCertificates(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	namespace := cluster.Namespace(t)
	render := func(more ...string) []*unstructured.Unstructured {
		args := append([]string{
			"template", "nvsentinel", chartDir, "--namespace=" + namespace, "--dry-run=server", "--kubeconfig=" + cluster.AdminKubeconfig(),
			file("kwok"), "--set=cspPluginTls.selfSigned=true",
		}, more...)
		out, problems, err := helm(t, args...)
		if err != nil {
			t.Fatal(problems)
		}
		return decode(t, out)
	}
	const plugin, gateway = "csp-plugin-tls", "platform-connectors-gateway-tls"
	first := render()
	for kind, names := range map[string][]string{"Secret": {plugin, gateway}, "ConfigMap": {"platform-connectors-gateway-ca"}} {
		for _, name := range names {
			object := find(first, kind, name).DeepCopy()
			annotations := map[string]string{"meta.helm.sh/release-name": "nvsentinel", "meta.helm.sh/release-namespace": namespace}
			maps.Copy(annotations, object.GetAnnotations())
			object.SetAnnotations(annotations)
			text, err := object.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if err := cluster.Apply(t.Context(), bytes.NewReader(text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	renamed := []string{"--set=cspPluginAws.enabled=true,janitor.cspPlugin.host=csp-plugin-kwok"}
	for name, tc := range map[string]struct {
		with []string
		kept map[string]bool
	}{
		"the same":      {nil, map[string]bool{plugin: true, gateway: true}},
		"a plugin more": {renamed, map[string]bool{plugin: false, gateway: true}},
	} {
		now := render(tc.with...)
		for secret, kept := range tc.kept {
			if same := cmp.Equal(find(first, "Secret", secret).Object["data"], find(now, "Secret", secret).Object["data"]); same != kept {
				t.Errorf("%s: %s is the one that was there: %v, want %v", name, secret, same, kept)
			}
		}
	}
}
