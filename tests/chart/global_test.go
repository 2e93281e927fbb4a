package chart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/cli/convert"
)

// TestGlobalDryRun: nothing acts, whatever the values of single services are: the last argument
// of each is a dry run, and nothing carries repairs out.
func TestGlobalDryRun(t *testing.T) {
	acting := []string{
		file("all"), "--set=faultQuarantine.dryRun=false,nodeDrainer.dryRun=false,faultRemediation.dryRun=false",
		"--set=faultQuarantine.extraArgs[0]=--dry-run=false,nodeDrainer.extraArgs[0]=-dry-run=0,faultRemediation.extraArgs[0]=--dry-run=f",
	}
	for _, more := range [][]string{nil, {"--set=faultQuarantine.dryRun=null,nodeDrainer.dryRun=null"}} {
		pods := workloads(t, rendered(t, slices.Concat(acting, more, []string{"--set=global.dryRun=true"})...))
		for _, actor := range []string{"fault-quarantine", "node-drainer", "fault-remediation"} {
			args := pods[actor].Spec.Containers[0].Args
			if args[len(args)-1] != "--dry-run=true" {
				t.Errorf("%s ends with %q", actor, args[len(args)-1])
			}
		}
		for _, actor := range []string{"janitor", "csp-plugin-aws"} {
			if _, there := pods[actor]; there {
				t.Errorf("%s is installed", actor)
			}
		}
	}
	pods := workloads(t, rendered(t, acting...))
	if args := pods["node-drainer"].Spec.Containers[0].Args; !slices.Contains(args, "--dry-run=false") || slices.Contains(args, "--dry-run=true") {
		t.Errorf("without it the service's own value does not count: %v", args)
	}
	if _, there := pods["janitor"]; !there {
		t.Error("without it the janitor is not installed")
	}
}

// TestValuesThatAreTakenAway are the defaults.
func TestValuesThatAreTakenAway(t *testing.T) {
	pods := workloads(t, rendered(t, file("store"), "--set=syslogHealthMonitor.processingStrategy=null,kubernetesObjectMonitor.processingStrategy=null",
		"--set=healthEventsAnalyzer.processingStrategy=null,faultQuarantine.dryRun=null,nodeDrainer.dryRun=null,faultRemediation.dryRun=null,global=null",
		everyMonitor, "--set=gpuHealthMonitor.processingStrategy=null,gpuHealthMonitor.dcgm.trusted=null,nicHealthMonitor.processingStrategy=null"))
	for _, monitor := range monitors {
		if _, there := pods[monitor.workload]; !there {
			t.Errorf("%s is not enabled by everyMonitor", monitor.workload)
			continue
		}
		if args := pods[monitor.workload].Spec.Containers[0].Args; !slices.Contains(args, "--processingStrategy="+monitor.strategy) {
			t.Errorf("%s is given %v", monitor.workload, args)
		}
	}
	for _, workload := range []string{"fault-quarantine", "node-drainer", "fault-remediation"} {
		if args := pods[workload].Spec.Containers[0].Args; !slices.Contains(args, "--dry-run=true") {
			t.Errorf("%s is given %v", workload, args)
		}
	}
}

// TestGlobal: what a parent chart shares fills in what the values leave open.
func TestGlobal(t *testing.T) {
	with := []string{
		file("store"), "--set=global.imageRegistry=mirror.example.com/,global.image.tag=v9,global.imagePullSecrets[0].name=a,global.imagePullSecrets[1]=b,image.pullSecrets[0].name=a",
		"--set=global.nodeSelector.pool=gpu,global.tolerations[0].key=gpu,global.systemNodeSelector.pool=system,global.systemNodeTolerations[0].key=system",
	}
	pods := workloads(t, rendered(t, with...))
	for workload, pod := range pods {
		onNode := workload == "syslog-health-monitor" || workload == "platform-connectors"
		pool := map[bool]string{true: "gpu", false: "system"}[onNode]
		image := pod.Spec.Containers[0].Image
		if !strings.HasPrefix(image, "mirror.example.com/nvidia/nvsentinel/") || !strings.HasSuffix(image, ":v9") {
			t.Errorf("%s runs %s", workload, image)
		}
		if diff := cmp.Diff([]corev1.LocalObjectReference{{Name: "a"}, {Name: "b"}}, pod.Spec.ImagePullSecrets); diff != "" {
			t.Errorf("%s pulls with (-want +got):\n%s", workload, diff)
		}
		if pod.Spec.NodeSelector["pool"] != pool || !slices.ContainsFunc(pod.Spec.Tolerations, func(x corev1.Toleration) bool { return x.Key == pool }) {
			t.Errorf("%s goes to %v with %v, want pool %s", workload, pod.Spec.NodeSelector, pod.Spec.Tolerations, pool)
		}
	}
	if s := pods["syslog-health-monitor"].Spec; s.NodeSelector["kubernetes.io/os"] != "linux" || len(s.Tolerations) != 2 {
		t.Errorf("its own places are lost: %v, %v", s.NodeSelector, s.Tolerations)
	}
	own := workloads(t, rendered(t, append(with, "--set=image.registry=own.example.com,image.tag=v1,controllers.nodeSelector.pool=mine")...))["node-drainer"]
	if !strings.HasPrefix(own.Spec.Containers[0].Image, "own.example.com/") || !strings.HasSuffix(own.Spec.Containers[0].Image, ":v1") || own.Spec.NodeSelector["pool"] != "mine" {
		t.Errorf("values of the chart itself count less: %s on %v", own.Spec.Containers[0].Image, own.Spec.NodeSelector)
	}
}

// TestGlobalsOfAParent: a chart that has this one as a part may share what this one
// does not know, but not a dry run that would be none.
func TestGlobalsOfAParent(t *testing.T) {
	parent := t.TempDir()
	for path, text := range map[string]string{
		"Chart.yaml":  "apiVersion: v2\nname: parent\nversion: 0.1.0\n",
		"values.yaml": "nvsentinel: {store: {secretName: s}}\nglobal: {storageClass: fast}\n",
	} {
		if err := os.WriteFile(filepath.Join(parent, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(parent, "charts/nvsentinel"), os.DirFS(chartDir)); err != nil {
		t.Fatal(err)
	}
	if _, output, err := helm(t, "template", "p", parent); err != nil {
		t.Errorf("with a global of its own: %s", output)
	}
	if out, stderr, err := helm(t, "template", "p", parent, "--set=global.dryRun=true,nvsentinel.nodeDrainer.dryRun=false"); err != nil || !strings.Contains(out, `- "--dry-run=true" # global.dryRun`) {
		t.Errorf("the parent's dry run does not count: %s", stderr)
	}
	if _, stderr, err := helm(t, "template", "p", parent, "--set=global.dryrun=true"); err == nil || !strings.Contains(stderr, "global.dryrun: use global.dryRun") {
		t.Errorf("a dry run that is misspelt: %v %s", err, stderr)
	}
}

// TestValuesOfTheEarlierOne: they are refused, all at once, by their present name and with the
// command that converts them.
func TestValuesOfTheEarlierOne(t *testing.T) {
	_, err := template(t, file("store"), "--set=fault-quarantine.replicaCount=2,platformConnector.enabled=true,socketPath=/x,preflight.enabled=true",
		"--set=global.janitor.enabled=true,global.qps=5,mongodb-store.enabled=true,csp-health-monitor.a=b")
	if err == nil {
		t.Fatal("they were taken")
	}
	for _, line := range []string{
		"fault-quarantine: renamed to faultQuarantine", "platformConnector: renamed to platformConnectors", "socketPath: renamed to hostPaths.run",
		"mongodb-store: renamed to store.secretName", "csp-health-monitor: renamed to cspHealthMonitor", "preflight: it was removed",
		"global.janitor: moved to janitor", "global.qps: unknown key", "nvsentinel convert-config values.yaml",
	} {
		if !strings.Contains(err.Error(), line) {
			t.Errorf("the error does not say %q:\n%v", line, err)
		}
	}
}

// TestEveryValueOfTheEarlierOne: the chart answers each value that the converter knows by its
// name, and with the command, all at once; so it does one key of global alone.
func TestEveryValueOfTheEarlierOne(t *testing.T) {
	values, names := map[string]any{}, map[string]bool{}
	for _, n := range convert.All() {
		if n.Kind != convert.Value {
			continue
		}
		top, below, _ := strings.Cut(n.Name, ".")
		if top != "global" && top != "janitor" && top != "podMonitor" {
			values[top], names[top] = map[string]any{}, true
			continue
		}
		key, _, _ := strings.Cut(below, ".")
		if values[top] == nil {
			values[top] = map[string]any{}
		}
		values[top].(map[string]any)[key], names[top+"."+key] = "x", true
	}
	text, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = template(t, file("store"), "-f", path); err == nil || len(names) < 50 || !strings.Contains(err.Error(), "nvsentinel convert-config values.yaml") {
		t.Fatalf("%d names are answered with %v", len(names), err)
	}
	for name := range names {
		if !strings.Contains(err.Error(), "\n"+name+": ") {
			t.Errorf("the error does not name %s:\n%v", name, err)
		}
	}
	if _, err := template(t, file("store"), "--set=global.qps=5"); err == nil || !strings.Contains(err.Error(), "nvsentinel convert-config values.yaml") {
		t.Errorf("global.qps alone: %v", err)
	}
}
