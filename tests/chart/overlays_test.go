package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// overlay is a way to install the chart.
type overlay struct {
	name string
	with []string // flags of helm
}

// overlays are the ways that the documentation names: the tests' files of values, the
// stages, and what can be switched on or is another by default, each by itself.
func overlays(t *testing.T) []overlay {
	t.Helper()
	var out []overlay
	for _, name := range values {
		out = append(out, overlay{name: "testdata/" + name, with: []string{file(name)}})
	}
	stages, err := filepath.Glob(filepath.Join(chartDir, "stages/*.yaml"))
	if err != nil || len(stages) < 4 {
		t.Fatalf("stages %v, %v", stages, err)
	}
	for _, stage := range stages {
		name := "stages/" + strings.TrimSuffix(filepath.Base(stage), ".yaml")
		out = append(out, overlay{name: name, with: []string{file("store"), "--values=" + stage, "--set=cspPluginKwok.enabled=true"}})
	}
	out = append(out, overlay{name: "every workload", with: []string{valuesFile(t, parse(t, everything))}})
	for _, o := range switches {
		out = append(out, overlay{name: o[0], with: append([]string{file("store")}, o[1:]...)})
	}
	return out
}

// switches are overlays over what one needs: a name and flags of helm.
var switches = [][]string{
	{"AWS, self-signed", "--set=janitor.enabled=true,cspPluginAws.enabled=true,cspPluginTls.selfSigned=true"},
	{"Azure, self-signed", "--set=janitor.enabled=true,cspPluginAzure.enabled=true,cspPluginTls.selfSigned=true"},
	{"Google Cloud, self-signed", "--set=janitor.enabled=true,cspPluginGcp.enabled=true,cspPluginTls.selfSigned=true"},
	{"OCI, self-signed", "--set=janitor.enabled=true,cspPluginOci.enabled=true,cspPluginTls.selfSigned=true"},
	{"kwok, self-signed", "--set=janitor.enabled=true,cspPluginKwok.enabled=true,cspPluginTls.selfSigned=true"},
	{"a plugin of one's own", "--set=janitor.enabled=true,janitor.cspPlugin.host=rack-plugin.acme.svc:9090,janitor.cspPlugin.caSecretName=rack-ca"},
	{"certificates by cert-manager", "--set=janitor.enabled=true,cspPluginAws.enabled=true,certManager.enabled=true,certManager.issuerRef.name=ours,platformConnectorsGateway.tls.caConfigMapName=gateway-ca"},
	{"maintenances of AWS", "--set=cspHealthMonitor.provider=aws," + maintenances},
	{"maintenances of Azure", "--set=cspHealthMonitor.provider=azure," + maintenances},
	{"maintenances of Google Cloud", "--set=cspHealthMonitor.provider=gcp," + maintenances},
	{"maintenances of OCI", "--set=cspHealthMonitor.provider=oci," + maintenances},
	{"resets of GPUs", "--set=janitor.enabled=true,cspPluginAws.enabled=true,janitor.gpuReset.enabled=true,janitor.gpuReset.image=gpu-reset:1,janitor.gpuReset.servicesNamespace=gpus"},
	{"repair chains", "--set=janitor.enabled=true,cspPluginAws.enabled=true,repairChain.enabled=true"},
	{"NodeHealthChecks, with the bridge", "--set=nodeHealthCheck.enabled=true,nodeHealthCheck.installCRD=true,nodeHealthCheck.bridge=true"},
	{"labels of nodes, coverage", "--set=labeler.enabled=true,platformConnectorsCluster.coverage.enabled=true"},
	{"DCGM of its own, metadata, network cards", "--set=gpuHealthMonitor.enabled=true,gpuHealthMonitor.dcgm.mode=embedded,metadataCollector.enabled=true,nicHealthMonitor.enabled=true"},
	{"the journal as source", "--set=syslogHealthMonitor.source=journal"},
	{"PERSIST_ONLY", "--set=syslogHealthMonitor.processingStrategy=PERSIST_ONLY,kubernetesObjectMonitor.processingStrategy=PERSIST_ONLY,healthEventsAnalyzer.processingStrategy=PERSIST_ONLY"},
	{"the store's own authority", "--set=store.tlsSecretName=store-ca"},
	{"a trial database without a volume", "--set=store.secretName=,trialPostgresql.enabled=true,trialPostgresql.storage.emptyDir=true"},
	{"metrics, alerts, dashboards", "--set=podMonitor.enabled=true,serviceMonitor.enabled=true,prometheusRule.enabled=true,dashboards.enabled=true"},
	{"viewers and the command line", "--set=cli.enabled=true,viewers[0].kind=Group,viewers[0].name=gpu-operators,viewers[0].apiGroup=rbac.authorization.k8s.io"},
	{"global.dryRun", "--set=global.dryRun=true,janitor.enabled=true,cspPluginAws.enabled=true"},
	{"global places and images", "--set=global.imageRegistry=r.example.com,global.imagePullSecrets[0]=pull,global.systemNodeSelector.pool=control,global.systemNodeTolerations[0].operator=Exists,global.tolerations[0].operator=Exists"},
	{"antiAffinity: required", "--set=antiAffinity=required,controllers.avoidGpuNodes=required,controllers.tolerateCordon=false"},
	{"roles and accounts by somebody else", "--set=rbac.create=false,serviceAccount.create=false"},
	{"no policies", "--set=networkPolicy.enabled=false,admission.nodes=false,admission.pods=false,admission.events=false,admission.names=false,admission.jobs=false"},
}

const maintenances = "cspHealthMonitor.enabled=true,cspHealthMonitor.clusterName=c,cspHealthMonitor.storeSecretName=maintenance-store"

// TestOverlaysHaveEveryPart: each part of the values that is off by default is on in one
// of them.
func TestOverlaysHaveEveryPart(t *testing.T) {
	output := everything
	for _, o := range overlays(t) {
		output += strings.Join(o.with, "\n") + "\n"
	}
	for _, name := range values {
		text, err := os.ReadFile("testdata/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		output += string(text)
	}
	for part, value := range defaults(t) {
		of, _ := value.(map[string]any)
		on := regexp.MustCompile(part + `(\.enabled=true|: \{enabled: true|:\n  enabled: true)`)
		if enabled, has := of["enabled"].(bool); has && !enabled && !on.MatchString(output) {
			t.Errorf("no overlay enables %s", part)
		}
	}
}
