package access

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"

	"github.com/nvidia/nvsentinel/internal/testkit"
)

// resetJob is the Job of a GPUReset as the janitor makes it, changed.
func resetJob(t *testing.T, change func(*batchv1.Job)) *batchv1.Job {
	t.Helper()
	text, err := os.ReadFile("../../janitor/internal/gpureset/job.golden.json")
	job := &batchv1.Job{}
	if err == nil {
		err = json.Unmarshal(text, job)
	}
	if err != nil {
		t.Fatal(err)
	}
	change(job)
	return job
}

// resets applies the manifest of GPU resets, once, waits until the policy is active, and returns
// a function that creates a Job as the janitor, in a dry run.
func resets(t *testing.T) func(*batchv1.Job) (*batchv1.Job, error) {
	t.Helper()
	w := newWorld(t)
	_, err := w.admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gpu-operator"}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	text, err := os.ReadFile(manifests + "gpu-reset.yaml")
	if err == nil {
		err = w.cluster.Apply(t.Context(), bytes.NewReader(text))
	}
	if err != nil {
		t.Fatal(err)
	}
	jobs := w.account(t, "janitor").BatchV1().Jobs(namespace)
	create := func(j *batchv1.Job) (*batchv1.Job, error) {
		return jobs.Create(t.Context(), j, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	testkit.Until(t, 2*time.Minute, func() bool {
		_, err := create(resetJob(t, func(*batchv1.Job) {}))
		return err == nil
	})
	testkit.Until(t, 2*time.Minute, func() bool {
		_, err := create(resetJob(t, func(j *batchv1.Job) { j.Name = "not-yet-in-force" }))
		return refused(err)
	})
	return create
}

// TestTheJanitorsJobsResetGPUsOnly: the right to create Jobs is not one to run anything
// as any account.
func TestTheJanitorsJobsResetGPUsOnly(t *testing.T) {
	create := resets(t)
	pod := func(change func(*corev1.PodSpec)) func(*batchv1.Job) {
		return func(j *batchv1.Job) { change(&j.Spec.Template.Spec) }
	}
	container := func(change func(*corev1.Container)) func(*batchv1.Job) {
		return func(j *batchv1.Job) { change(&j.Spec.Template.Spec.Containers[0]) }
	}
	shell := &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "id"}}
	secret := corev1.LocalObjectReference{Name: "store"}
	for what, change := range map[string]func(*batchv1.Job){
		"another name":   func(j *batchv1.Job) { j.Name = "x" },
		"another's name": func(j *batchv1.Job) { j.Name = "x-reset-job" },
		"no owner":       func(j *batchv1.Job) { j.OwnerReferences = nil },
		"two owners": func(j *batchv1.Job) {
			j.OwnerReferences = append(j.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n", UID: "v"})
		},
		"an annotation": func(j *batchv1.Job) { j.Annotations = map[string]string{"a": "b"} },
		"a finalizer":   func(j *batchv1.Job) { j.Finalizers = []string{"example.com/x"} },
		"tries":         func(j *batchv1.Job) { j.Spec.BackoffLimit = new(int32(6)) },
		"many pods":     func(j *batchv1.Job) { j.Spec.Parallelism, j.Spec.Completions = new(int32(9)), new(int32(9)) },
		"no time":       func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = nil },
		"a selector": func(j *batchv1.Job) {
			j.Spec.ManualSelector, j.Spec.Selector = new(true), &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "gpu-reset"}}
		},
		"a pod of a service": func(j *batchv1.Job) { j.Spec.Template.Labels["app.kubernetes.io/name"] = "platform-connectors-gateway" },
		"another label":      func(j *batchv1.Job) { j.Spec.Template.Labels["app.kubernetes.io/part-of"] = "nvsentinel" },
		"a pod's annotation": func(j *batchv1.Job) {
			j.Spec.Template.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/gpu-reset": "unconfined"}
		},
		"no node":              pod(func(p *corev1.PodSpec) { p.NodeName = "" }),
		"the node's network":   pod(func(p *corev1.PodSpec) { p.HostNetwork = true }),
		"the node's processes": pod(func(p *corev1.PodSpec) { p.HostPID = true }),
		"an account":           pod(func(p *corev1.PodSpec) { p.ServiceAccountName = "fault-quarantine" }),
		"a token":              pod(func(p *corev1.PodSpec) { p.AutomountServiceAccountToken = nil }),
		"a priority":           pod(func(p *corev1.PodSpec) { p.PriorityClassName = "system-node-critical" }),
		"names of hosts": pod(func(p *corev1.PodSpec) {
			p.HostAliases = []corev1.HostAlias{{IP: "10.0.0.1", Hostnames: []string{"x"}}}
		}),
		"two containers": pod(func(p *corev1.PodSpec) { p.Containers = append(p.Containers, corev1.Container{Name: "x", Image: "x"}) }),
		"one before it":  pod(func(p *corev1.PodSpec) { p.InitContainers = p.Containers }),
		"a Secret as volume": pod(func(p *corev1.PodSpec) {
			p.Volumes[0].VolumeSource = corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "store"}}
		}),
		"a token as volume": pod(func(p *corev1.PodSpec) {
			p.Volumes = append(p.Volumes, corev1.Volume{Name: "t", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t"}}},
			}}})
		}),
		"another image":   container(func(c *corev1.Container) { c.Image = "example.com/shell" }),
		"another command": container(func(c *corev1.Container) { c.Command = shell.Command }),
		"arguments":       container(func(c *corev1.Container) { c.Args = shell.Command }),
		"a hook": container(func(c *corev1.Container) {
			c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: shell}}
		}),
		"a probe": container(func(c *corev1.Container) {
			c.StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: shell}}
		}),
		"a folder": container(func(c *corev1.Container) { c.WorkingDir = "/host/tmp" }),
		"a Secret's value": container(func(c *corev1.Container) {
			c.Env[0] = corev1.EnvVar{Name: c.Env[0].Name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: secret, Key: "uri"}}}
		}),
		"a Secret's values": container(func(c *corev1.Container) {
			c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: secret}}}
		}),
		"a library": container(func(c *corev1.Container) {
			c.Env = append(c.Env, corev1.EnvVar{Name: "LD_PRELOAD", Value: "/host/tmp/x.so"})
		}),
		"a library in place": container(func(c *corev1.Container) { c.Env[1] = corev1.EnvVar{Name: "LD_PRELOAD", Value: "/host/tmp/x.so"} }),
		"another driver":     container(func(c *corev1.Container) { c.Env[2].Value = "/host/tmp" }),
		"a shell for a GPU":  container(func(c *corev1.Container) { c.Env[0].Value = "GPU-1;id" }),
		"another mount":      container(func(c *corev1.Container) { c.VolumeMounts[0].MountPath = "/usr/bin" }),
		"a part of a mount":  container(func(c *corev1.Container) { c.VolumeMounts[0].SubPath = "tmp" }),
		"a capability": container(func(c *corev1.Container) {
			c.SecurityContext.Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}
		}),
	} {
		if _, err := create(resetJob(t, change)); !refused(err) {
			t.Errorf("%s: %v, want it refused", what, err)
		}
	}
}

// TestOnlyTheJobOfAResetPasses: of Jobs with anything else in any field, those pass that
// differ from the janitor's in what is free: the node, the GPUs, the runtime class,
// Secrets for pulling, and times.
func TestOnlyTheJobOfAResetPasses(t *testing.T) {
	create := resets(t)
	base, err := create(resetJob(t, func(*batchv1.Job) {}))
	if err != nil {
		t.Fatal(err)
	}
	want := bare(t, base)
	rng := rand.New(rand.NewPCG(3, 12))
	tried, accepted, invalid := 0, 0, 0
	fields := map[string]bool{}
	for tried < 1500 {
		job, field := grafted(t, rng)
		fields[field] = true
		tried++
		got, err := create(job)
		switch {
		case err == nil:
			accepted++
			if diff := cmp.Diff(want, bare(t, got)); diff != "" {
				t.Errorf("with %s a Job passes that is not the janitor's (-janitor's +passes):\n%s", field, diff)
			}
		case !refused(err):
			invalid++ // not a valid Job, according to the API server
		}
	}
	t.Logf("%d Jobs tried, %d different fields; %d accepted, all of the allowed shape; %d were no valid Jobs", tried, len(fields), accepted, invalid)
	if accepted == 0 || tried-accepted-invalid < tried/4 {
		t.Errorf("of %d Jobs %d are accepted, %d invalid: the generator tries too little", tried, accepted, invalid)
	}
}

// words are what random texts are taken from: much of it is valid somewhere.
var words = []string{
	"", "x", "store", "janitor", "default", "repair-step-x", "gpu-reset", "host", "/", "/host", "/bin/sh", "LD_PRELOAD", "void", "Always", "Never", "OnFailure", "Exists",
	"File", "FallbackToLogsOnError", "IfNotPresent", "HostToContainer", "Bidirectional", "None", "ClusterFirst", "ClusterFirstWithHostNet", "Default", "TCP", "Indexed",
	"NonIndexed", "TerminatingOrFailed", "Failed", "NoExecute", "Directory", "example.com/shell:1", "metadata.name", "1", "8Gi", "RuntimeDefault", "Unconfined", "linux",
}

// donor is a Job with everything that there is, at random.
func donor(t *testing.T, rng *rand.Rand) map[string]any {
	t.Helper()
	fill := randfill.NewWithSeed(int64(rng.Uint64()>>1)).NilChance(0.2).NumElements(1, 2).MaxDepth(24).Funcs(
		func(s *string, _ randfill.Continue) { *s = words[rng.IntN(len(words))] },
		func(n *int32, _ randfill.Continue) { *n = rng.Int32N(3) },
		func(n *int64, _ randfill.Continue) { *n = rng.Int64N(3) },
		func(s *metav1.Time, _ randfill.Continue) { *s = metav1.NewTime(time.Unix(1_800_000_000, 0)) },
		func(m *[]metav1.ManagedFieldsEntry, _ randfill.Continue) { *m = nil },
	)
	job := &batchv1.Job{}
	fill.Fill(&job.ObjectMeta)
	fill.Fill(&job.Spec)
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(job)
	if err != nil {
		t.Fatal(err)
	}
	delete(out, "status")
	return out
}

// grafted is the janitor's Job with one field of a donor, wherever that is.
func grafted(t *testing.T, rng *rand.Rand) (*batchv1.Job, string) {
	t.Helper()
	for {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(resetJob(t, func(*batchv1.Job) {}))
		if err != nil {
			t.Fatal(err)
		}
		delete(object, "status")
		path := graft(rng, object, donor(t, rng))
		job := &batchv1.Job{}
		if path == "" || runtime.DefaultUnstructuredConverter.FromUnstructured(object, job) != nil {
			continue
		}
		return job, path
	}
}

// graft walks down both objects at random and gives one the other's value of the place
// where it ends; it returns the place.
func graft(rng *rand.Rand, to, from map[string]any) string {
	keys := slices.Sorted(maps.Keys(from))
	if len(keys) == 0 {
		return ""
	}
	key := keys[rng.IntN(len(keys))]
	deeper := rng.IntN(6) > 0
	if mine, is := to[key].(map[string]any); is && deeper {
		if theirs, is := from[key].(map[string]any); is {
			return key + "." + graft(rng, mine, theirs)
		}
	}
	mine, _ := to[key].([]any)
	theirs, _ := from[key].([]any)
	if len(mine) > 0 && len(theirs) > 0 && deeper {
		at, of := rng.IntN(len(mine)), rng.IntN(len(theirs))
		if a, is := mine[at].(map[string]any); is {
			if b, is := theirs[of].(map[string]any); is {
				return key + "[]." + graft(rng, a, b)
			}
		}
		if rng.IntN(2) == 0 {
			to[key] = append(slices.Clone(mine), theirs[of])
			return key + "[]"
		}
	}
	to[key] = from[key]
	return key
}

// bare is a Job without what the API server adds and what is free.
func bare(t *testing.T, job *batchv1.Job) map[string]any {
	t.Helper()
	j := job.DeepCopy()
	j.UID, j.CreationTimestamp, j.ManagedFields, j.Generation = "", metav1.Time{}, nil, 0
	j.Spec.Selector, j.Spec.TTLSecondsAfterFinished, j.Spec.ActiveDeadlineSeconds, j.Spec.PodReplacementPolicy = nil, nil, nil, nil
	for _, key := range []string{"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"} {
		delete(j.Spec.Template.Labels, key)
	}
	if len(j.OwnerReferences) == 1 && j.Name == j.OwnerReferences[0].Name+"-reset-job" {
		j.Name, j.OwnerReferences[0].Name = "", ""
		j.OwnerReferences[0].UID, j.OwnerReferences[0].Controller, j.OwnerReferences[0].BlockOwnerDeletion = "", nil, nil
	}
	p := &j.Spec.Template.Spec
	if j.Spec.Template.CreationTimestamp = (metav1.Time{}); p.NodeName != "" {
		p.NodeName = "gpu-1"
	}
	p.RuntimeClassName, p.ImagePullSecrets = nil, nil
	if c := &p.Containers[0]; len(c.Env) > 0 && !strings.ContainsAny(c.Env[0].Value, " ;|&$`'\"\n") {
		c.ImagePullPolicy, c.Env[0].Value = "", ""
	}
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(j)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
