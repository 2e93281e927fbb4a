package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/report"
	"github.com/nvidia/nvsentinel/platform-connectors/authz"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/authn"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// token is one of the account, for the audience, bound to a pod of the account
// on the node; without a node it is bound to nothing.
func (s *site) token(namespace, account, node, audience string) string {
	s.t.Helper()
	ctx, client := s.t.Context(), s.cluster.Client()
	_, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		s.t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
	if node != "" {
		pod, err := client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: account + "-"},
			Spec: corev1.PodSpec{
				ServiceAccountName: account, NodeName: node,
				Containers: []corev1.Container{{Name: "monitor", Image: "monitor"}},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		}
	}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return token.Status.Token
}

// publisher speaks with a token through the library that the monitors use;
// without one it speaks as a process without an account.
func (p *place) publisher(token string) protos.PlatformConnectorClient {
	p.t.Helper()
	file := ""
	if token != "" {
		file = filepath.Join(p.t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
	conn, err := report.Dial(p.socket, file)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { conn.Close() })
	return protos.NewPlatformConnectorClient(conn)
}

// wide registers the cluster-wide agent "wide" of a namespace at the gateway, by tokens of the
// cluster.
func (s *site) wide(namespace string) {
	s.agents = []authz.Agent{{Name: "wide", Account: "system:serviceaccount:" + namespace + ":wide", ClusterWide: true}}
	s.reviews = s.cluster.Client().AuthenticationV1().TokenReviews()
}

// refused sends one event and wants this answer.
func (p *place) refused(c protos.PlatformConnectorClient, e *protos.HealthEvent, code codes.Code, text string) {
	p.t.Helper()
	var err error
	await(p.t, func() (bool, string) {
		_, err = c.HealthEventOccurredV1(p.t.Context(), &protos.HealthEvents{Version: 1, Events: []*protos.HealthEvent{e}}, grpc.WaitForReady(true))
		// Unavailable means "try again": a busy API server answers no review in time.
		return status.Code(err) != codes.Unavailable || code == codes.Unavailable && strings.Contains(err.Error(), text), fmt.Sprint(err)
	})
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), text) {
		p.t.Errorf("answer %v, want %s with %q", err, code, text)
	}
}

// accepted sends one event until it is acknowledged.
func (p *place) accepted(c protos.PlatformConnectorClient, e *protos.HealthEvent) {
	p.t.Helper()
	if err := send(p.t.Context(), c, e); err != nil {
		p.t.Fatal(err)
	}
}

// stands wants that the fault of the node is shown and that the store has n
// records and no recovery.
func (s *site) stands(publisher string, n int) {
	s.t.Helper()
	s.awaitCondition(check, faulty(entry(publisher, 1)))
	all, err := s.records().List(s.t.Context(), store.Query{})
	if err != nil || len(all) != n {
		s.t.Errorf("%d records are stored, %v; want %d", len(all), err, n)
	}
	for _, r := range all {
		if r.Event.IsHealthy {
			s.t.Errorf("the recovery %s is stored", r.ID)
		}
	}
}

// other is the place of another node's connector, with the same store.
func (s *site) other(name string) *place {
	s.t.Helper()
	if _, err := s.cluster.AddNode(s.t.Context(), localcluster.NodeSpec{Name: name}); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := s.cluster.DeleteNode(context.WithoutCancel(s.t.Context()), name); err != nil {
			s.t.Error(err)
		}
	})
	p := newPlaceOf(s.t, name, "--kubeconfig="+s.cluster.AdminKubeconfig())
	p.store = s.dsn()
	return p
}

// TestAPodOfOneNodeCannotSpeakForAnother: neither through its own socket, nor
// with its token through the other node's.
func TestAPodOfOneNodeCannotSpeakForAnother(t *testing.T) {
	s := newSite(t) // node gpu-7 has the fault
	s.makeStoreReachable()
	s.start()
	elsewhere := s.other("gpu-8")
	elsewhere.start()
	namespace := s.cluster.Namespace(t)
	mine := s.token(namespace, "monitor", nodeName, authn.Audience)
	theirs := s.token(namespace, "monitor", "gpu-8", authn.Audience)

	s.accepted(s.publisher(mine), event("a", 1))
	s.awaitCondition(check, faulty(entry("a", 1)))
	awaitStored(t, s.records(), 1)

	fault := event("b", 1)
	for _, e := range []*protos.HealthEvent{healthy("a", 2), fault} {
		elsewhere.refused(elsewhere.publisher(theirs), e, codes.PermissionDenied, `nodeName: is "gpu-7", and this is the connector of node "gpu-8"`)
		elsewhere.refused(elsewhere.publisher(""), e, codes.PermissionDenied, `nodeName: is "gpu-7", and this is the connector of node "gpu-8"`)
		s.refused(s.publisher(theirs), e, codes.PermissionDenied, `belongs to a Pod of node "gpu-8", and this is the connector of "gpu-7"`)
	}
	s.accepted(s.publisher(mine), event("a", 1)) // the connector is still open for its own
	s.stands("a", 1)
}

func TestAnAgentCannotSpeakAboutAnotherAgentsCheck(t *testing.T) {
	s := newSite(t)
	s.makeStoreReachable()
	connector := s.start()
	namespace := s.cluster.Namespace(t)
	owner := s.publisher(s.token(namespace, "owner", nodeName, authn.Audience))
	rival := s.publisher(s.token(namespace, "rival", nodeName, authn.Audience))
	s.accepted(owner, event("a", 1))
	claimed := event("c", 1)
	claimed.Agent, claimed.CheckName, claimed.ProcessingStrategy = "rival", "RivalCheck", protos.ProcessingStrategy_PERSIST_ONLY
	s.accepted(rival, claimed)
	s.awaitCondition(check, faulty(entry("a", 1)))
	awaitStored(t, s.records(), 2)

	asRival, ownersOfRival := healthy("a", 2), event("d", 1)
	asRival.Agent = "rival"
	ownersOfRival.CheckName = "RivalCheck"
	attempts := func() {
		t.Helper()
		belongs := fmt.Sprintf("check %q belongs to agent %q", check, agent)
		s.refused(rival, asRival, codes.PermissionDenied, belongs)
		s.refused(rival, healthy("a", 2), codes.PermissionDenied, "belongs to system:serviceaccount:"+namespace+":owner and not to")
		s.refused(s.publisher(""), healthy("a", 2), codes.PermissionDenied, "send the token of that account")
		s.refused(owner, ownersOfRival, codes.PermissionDenied, `check "RivalCheck" belongs to agent "rival"`)
		s.stands("a", 2)
	}
	attempts()
	connector.kill()
	connector = s.start() // what is known of them outlives the process
	s.accepted(owner, event("a", 1))
	attempts()
	connector.kill()

	s.start()
	s.accepted(owner, healthy("a", 2))
	s.awaitCondition(check, cleared)
}

func TestTokensAreVerifiedAndFailClosed(t *testing.T) {
	s := newSite(t)
	s.makeStoreReachable()
	s.args = append(s.args, "--publisher-tokens=required", "--publisher-token-cache-ttl=10m")
	s.start()
	namespace := s.cluster.Namespace(t)
	good := s.publisher(s.token(namespace, "monitor", nodeName, authn.Audience))
	s.accepted(good, event("a", 1))

	s.refused(s.publisher(""), event("a", 2), codes.Unauthenticated, "accepts events only with a service account token")
	s.refused(s.publisher("garbage"), event("a", 2), codes.Unauthenticated, "rejected the token for the audience "+authn.Audience)
	wrong := s.publisher(s.token(namespace, "monitor", nodeName, "another-audience"))
	s.refused(wrong, event("a", 2), codes.Unauthenticated, "rejected the token for the audience "+authn.Audience)

	late := s.publisher(s.token(namespace, "monitor", nodeName, authn.Audience))
	s.cluster.StopAPIServer()
	s.refused(late, event("a", 2), codes.Unavailable, "nothing was accepted, retry")
	s.accepted(good, event("a", 3)) // its verdict is remembered
	if err := s.cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.accepted(late, event("a", 2))
	awaitStored(t, s.records(), 3)
}

func TestAClusterWidePublisherSpeaksForOtherNodes(t *testing.T) {
	s := newSite(t)
	namespace := s.cluster.Namespace(t)
	file := filepath.Join(s.dir, "connector.toml")
	text := fmt.Sprintf("[[publishers.agent]]\nname = \"wide\"\naccount = \"system:serviceaccount:%s:wide\"\nclusterWide = true\n", namespace)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.args = append(s.args, "--config="+file)
	s.wide(namespace)
	connector := s.start()
	e := event("a", 1)
	e.Agent, e.CheckName, e.NodeName = "wide", "WideCheck", "gpu-99"
	wide := s.publisher(s.token(namespace, "wide", nodeName, authn.Audience))

	// It is acknowledged when the store has it, not before.
	s.refused(wide, e, codes.Unavailable, "sending to the gateway")
	connector.kill()
	s.makeStoreReachable()
	s.start()
	s.accepted(wide, e)
	all, err := s.records().List(t.Context(), store.Query{})
	if err != nil || len(all) != 1 || all[0].Event.NodeName != "gpu-99" {
		t.Errorf("stored: %v, %v", all, err)
	}

	s.refused(s.publisher(s.token(namespace, "wide", "", authn.Audience)), e, codes.PermissionDenied, "is not bound to a Pod of this node")
	s.refused(s.publisher(s.token(namespace, "narrow", nodeName, authn.Audience)), e, codes.PermissionDenied, `nodeName: is "gpu-99"`)
	own := event("a", 2)
	own.Agent = "wide"
	s.refused(s.publisher(""), own, codes.PermissionDenied, `agent "wide" belongs to system:serviceaccount:`+namespace+":wide")
}

func TestOnlyListedUsersMayUseTheSocket(t *testing.T) {
	p := newPlace(t, "--kubernetes=false")
	p.makeStoreReachable()
	file := filepath.Join(p.dir, "connector.toml")
	allow := func(uid int) {
		if err := os.WriteFile(file, fmt.Appendf(nil, "[publishers]\nuids = [%d]\n", uid), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.args = append(p.args, "--config="+file)
	allow(os.Getuid() + 1)
	connector := p.start()
	await(t, func() (bool, string) { _, err := os.Stat(p.socket); return err == nil, "no socket" })
	p.refused(p.publisher(""), event("a", 1), codes.PermissionDenied, fmt.Sprintf("user %d is not allowed to use this socket", os.Getuid()))
	p.refused(p.publisher("a.b.c"), event("a", 1), codes.Unauthenticated, "runs without Kubernetes and cannot verify tokens")
	connector.stop()
	allow(os.Getuid())
	p.start()
	p.accepted(p.publisher(""), event("a", 1))
	awaitStored(t, p.records(), 1)
}
