package e2e

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

const root = "../.."

// TestPagesContainCommands: the commands that a run takes from the pages are there, so that a
// change of a page is noticed without a run.
func TestPagesContainCommands(t *testing.T) {
	page, err := pages(root)
	if err != nil {
		t.Fatal(err)
	}
	for having, begin := range map[string][]string{
		"helm install nvsentinel distros/helm": {"kubectl create namespace", "kubectl label namespace", "kubectl -n nvsentinel create secret", "helm install nvsentinel distros/helm/nvsentinel -n nvsentinel"},
		"create secret generic store-ca":       {"kubectl -n nvsentinel create secret generic store-ca", "echo -n 'postgres://"},
		"helm push":                            {"helm package", "helm push", "helm install nvsentinel oci://"},
	} {
		lines, err := commands(page, having)
		if err != nil {
			t.Error(err)
		}
		if !slices.EqualFunc(lines, begin, strings.HasPrefix) {
			t.Errorf("the block with %q has the commands %q, want %q", having, lines, begin)
		}
	}
	if command, err := definitionsCommand(page); err != nil || !strings.HasSuffix(command, "distros/helm/nvsentinel/crds") {
		t.Errorf("definitions: %q, %v", command, err)
	}
	listed, err := Privileged(root)
	if err != nil || !slices.Contains(listed, "platform-connectors: root, none") {
		t.Errorf("docs/reference/permissions.md lists %q, %v", listed, err)
	}
}

// TestNames: a simulated name has its address, an unknown name does not exist, and a query for
// an address of another kind has no answer.
func TestNames(t *testing.T) {
	n := names{played: map[string]string{"db.example.com.": "10.99.0.1"}}
	tests := map[string]struct {
		name string
		kind dnsmessage.Type
		code dnsmessage.RCode
		want int
	}{
		"played":    {"DB.example.com.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, 1},
		"of IPv6":   {"db.example.com.", dnsmessage.TypeAAAA, dnsmessage.RCodeSuccess, 0},
		"nobody's":  {"www.example.com.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		"no domain": {"svc.cluster.local.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			query := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(tt.name), Type: tt.kind, Class: dnsmessage.ClassINET}}}
			packed, err := query.Pack()
			if err != nil {
				t.Fatal(err)
			}
			text, err := n.answer(t.Context(), packed)
			if err != nil {
				t.Fatal(err)
			}
			var got dnsmessage.Message
			if err := got.Unpack(text); err != nil || got.RCode != tt.code || len(got.Answers) != tt.want {
				t.Errorf("answer %v, %v, want %v and %d addresses", got, err, tt.code, tt.want)
			}
		})
	}
}

// TestComplaints: a right that is missing is a complaint of what is installed, and a
// program that is wrong one of everybody.
func TestComplaints(t *testing.T) {
	l := &logs{}
	for _, output := range []struct{ pod, line string }{
		{"janitor-d9966-qbz95_1", "cannot list: forbidden"},
		{"node-drainer-d9966-aaaaa_2", "patching: forbidden"},
		{"janitor-d9966-qbz95_1", "panic: forbidden"},
		{"node-drainer-d9966-aaaaa_2", "all is well"},
		{"nvsentinel-controller-d9966-bbbbb_3", `{"msg":"forbidden","service":"janitor"}`},
		{"nvsentinel-controller-d9966-bbbbb_3", `{"msg":"forbidden","service":"node-drainer"}`},
		{"nvsentinel-controller-d9966-bbbbb_3", `{"msg":"forbidden","service":"nvsentinel-controller"}`},
		{"nvsentinel-controller-d9966-bbbbb_3", `{"service":"nvsentinel-controller","err":"serviceaccounts \"janitor\" is forbidden: User cannot impersonate it"}`},
	} {
		l.checkLine("/var/log/pods/nvsentinel_"+output.pod+"/service/0.log", output.line)
	}
	const process = "nvsentinel-controller-d9966-bbbbb_3: "
	want := []string{
		"node-drainer-d9966-aaaaa_2: patching: forbidden", "janitor-d9966-qbz95_1: panic: forbidden",
		process + `{"msg":"forbidden","service":"node-drainer"}`, process + `{"msg":"forbidden","service":"nvsentinel-controller"}`,
	}
	if got := l.complaints([]string{"node-drainer", "nvsentinel-controller"}); !slices.Equal(got, want) {
		t.Errorf("complaints are %q, want %q", got, want)
	}
	if again := l.complaints([]string{"janitor"}); again != nil || l.lines != 8 {
		t.Errorf("told twice: %q; %d lines", again, l.lines)
	}
}
