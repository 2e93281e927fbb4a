package chart

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvidia/nvsentinel/internal/localcluster"
)

const trialDatabase = "trial-postgresql"

// TestTrialDatabase: one restricted pod, whose address only its Secret contains, serves every
// service that has a store; its data outlives it unless the values state otherwise.
func TestTrialDatabase(t *testing.T) {
	if find(rendered(t, file("store")), "StatefulSet", trialDatabase) != nil {
		t.Error("it is there by default")
	}
	objects := rendered(t, file("trial"), "--set=store.secretKey=address")
	secret := as[corev1.Secret](t, find(objects, "Secret", trialDatabase))
	want := "postgres://nvsentinel:" + string(secret.Data["postgres-password"]) + "@trial-postgresql." + release + ".svc:5432/nvsentinel?sslmode=disable"
	if got := string(secret.Data["address"]); got != want || len(secret.Data["postgres-password"]) < 32 || secret.Annotations["helm.sh/resource-policy"] != "keep" {
		t.Errorf("its Secret has the address %s, want %s, and the annotations %v", got, want, secret.Annotations)
	}
	for workload, pod := range workloads(t, objects) {
		for _, v := range pod.Spec.Volumes {
			if v.Name == "store" && v.Secret.SecretName != trialDatabase {
				t.Errorf("%s goes to the store of Secret %s", workload, v.Secret.SecretName)
			}
		}
	}
	set := as[appsv1.StatefulSet](t, find(objects, "StatefulSet", trialDatabase)).Spec
	claim := set.VolumeClaimTemplates[0].Spec
	if size := claim.Resources.Requests[corev1.ResourceStorage]; *set.Replicas != 1 || size.String() != "1Gi" || *claim.StorageClassName != "fast" {
		t.Errorf("%d pods claim %v of class %s", *set.Replicas, size, *claim.StorageClassName)
	}
	restricted(t, set.Template)
	lost := as[appsv1.StatefulSet](t, find(rendered(t, file("trial"), "--set=trialPostgresql.storage.emptyDir=true"), "StatefulSet", trialDatabase)).Spec
	if !slices.ContainsFunc(lost.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "data" && v.EmptyDir != nil }) || len(lost.VolumeClaimTemplates) > 0 {
		t.Errorf("with emptyDir it has the volumes %v and claims %v", lost.Template.Spec.Volumes, lost.VolumeClaimTemplates)
	}
}

// restricted is what Kubernetes' own policy of that name asks, and a root file system
// that cannot be written; the password is a file.
func restricted(t *testing.T, pod corev1.PodTemplateSpec) {
	t.Helper()
	c, p := pod.Spec.Containers[0], pod.Spec.SecurityContext
	s := c.SecurityContext
	if !*p.RunAsNonRoot || *p.RunAsUser == 0 || p.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || *pod.Spec.AutomountServiceAccountToken {
		t.Errorf("the pod has %v", p)
	}
	if *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Contains(s.Capabilities.Drop, "ALL") {
		t.Errorf("the container has %v", s)
	}
	for _, e := range c.Env {
		if e.ValueFrom != nil || e.Name == "POSTGRES_PASSWORD" {
			t.Errorf("a secret is in variable %s", e.Name)
		}
	}
	for _, setting := range []string{"fsync=on", "full_page_writes=on", "synchronous_commit=on", "max_connections=200"} {
		if !slices.Contains(c.Args, setting) {
			t.Errorf("the server is not told %s: %v", setting, c.Args)
		}
	}
	for name, probe := range map[string]*corev1.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
		if probe == nil || probe.Exec == nil || probe.Exec.Command[0] != "pg_isready" {
			t.Errorf("its %s probe is %v", name, probe)
		}
	}
}

// TestTrialDatabaseIsClosed: who goes to the store reaches it, and nobody else; no policy
// and no monitor of the suite's pods is about it.
func TestTrialDatabaseIsClosed(t *testing.T) {
	objects := rendered(t, file("trial"))
	if labels := as[appsv1.StatefulSet](t, find(objects, "StatefulSet", trialDatabase)).Spec.Template.Labels; labels["app.kubernetes.io/part-of"] == "nvsentinel" {
		t.Errorf("its pod counts among the suite's: %v", labels)
	}
	policy := as[networkingv1.NetworkPolicy](t, find(objects, "NetworkPolicy", trialDatabase)).Spec
	if len(policy.PolicyTypes) != 2 || len(policy.Egress) > 0 || len(policy.Ingress) != 1 || policy.Ingress[0].Ports[0].Port.StrVal != "postgresql" {
		t.Fatalf("its policy is %v", policy)
	}
	let := policy.Ingress[0].From[0].PodSelector.MatchExpressions[0].Values
	want := []string{"nvsentinel-test"}
	for workload, pod := range workloads(t, objects) {
		if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "store" }) {
			want = append(want, workload)
		}
	}
	slices.Sort(want)
	slices.Sort(let)
	if diff := cmp.Diff(want, let); diff != "" {
		t.Errorf("let in (-those with the store's address +policy):\n%s", diff)
	}
	if find(rendered(t, file("trial"), "--set=networkPolicy.enabled=false"), "NetworkPolicy", trialDatabase) != nil {
		t.Error("the policy is there without networkPolicy.enabled")
	}
}

// TestTrialDatabaseIsNamed: the installation notes state what it is not for.
func TestTrialDatabaseIsNamed(t *testing.T) {
	for name, want := range map[string]bool{"trial": true, "store": false} {
		notes, problems, err := helm(t, "install", "nvsentinel", chartDir, "--namespace", release, "--dry-run=client", file(name))
		if err != nil {
			t.Fatal(problems)
		}
		if _, notes, _ = strings.Cut(notes, "\nNOTES:\n"); strings.Contains(notes, "NOT FOR") != want {
			t.Errorf("%s: the notes are\n%s", name, notes)
		}
	}
}

// TestUpgradeKeepsTheTrialsPassword: the one that was made before is found in the
// cluster; the database would not take over another.
func TestUpgradeKeepsTheTrialsPassword(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	namespace := cluster.Namespace(t)
	render := func() *unstructured.Unstructured {
		out, problems, err := helm(t, "template", "nvsentinel", chartDir, "--namespace="+namespace, "--dry-run=server",
			"--kubeconfig="+cluster.AdminKubeconfig(), "--show-only=templates/trial-postgresql.yaml", file("trial"))
		if err != nil {
			t.Fatal(problems)
		}
		return find(decode(t, out), "Secret", trialDatabase)
	}
	first := render()
	if cmp.Equal(first.Object["data"], render().Object["data"]) {
		t.Error("two installations have one password")
	}
	annotated := first.DeepCopy()
	annotated.SetAnnotations(map[string]string{"meta.helm.sh/release-name": "nvsentinel", "meta.helm.sh/release-namespace": namespace})
	text, err := annotated.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Apply(t.Context(), bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first.Object["data"], render().Object["data"]); diff != "" {
		t.Errorf("an upgrade makes another Secret (-first +second):\n%s", diff)
	}
}
