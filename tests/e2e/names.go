package e2e

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// clusterDomain ends the names of Services.
	clusterDomain = ".svc.cluster.local."
	// longestQuery of DNS over UDP.
	longestQuery = 1500
)

// names answers the pods' questions: Services by their cluster's name, and what is
// played by its own.
type names struct {
	client kubernetes.Interface
	played map[string]string // addresses by name with a dot at the end
}

// serve answers until ctx ends.
func (n names) serve(ctx context.Context) error {
	conn, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", net.JoinHostPort(address, "53"))
	if err != nil {
		return fmt.Errorf("serving names: %w", err)
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	go func() {
		query := make([]byte, longestQuery)
		for {
			size, from, err := conn.ReadFrom(query)
			if err != nil {
				return
			}
			if answer, err := n.answer(ctx, query[:size]); err == nil {
				_, _ = conn.WriteTo(answer, from) // who lost it asks again
			}
		}
	}()
	return nil
}

// answer is a reply to one query.
func (n names) answer(ctx context.Context, query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	m.Response, m.Authoritative, m.RecursionAvailable, m.Additionals = true, true, true, nil
	for _, q := range m.Questions {
		found, err := n.resolve(ctx, strings.ToLower(q.Name.String()))
		switch {
		case err != nil:
			return nil, err
		case len(found) == 0:
			m.RCode = dnsmessage.RCodeNameError
		case q.Type == dnsmessage.TypeA:
			for _, ip := range found {
				m.Answers = append(m.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1},
					Body:   &dnsmessage.AResource{A: [4]byte(net.ParseIP(ip).To4())},
				})
			}
		}
	}
	return m.Pack()
}

// resolve is the addresses of a name, and none of one that nobody has.
func (n names) resolve(ctx context.Context, name string) ([]string, error) {
	if ip, is := n.played[name]; is {
		return []string{ip}, nil
	}
	service, is := strings.CutSuffix(name, clusterDomain)
	service, namespace, cut := strings.Cut(service, ".")
	if !is || !cut {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	s, err := n.client.CoreV1().Services(namespace).Get(ctx, service, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case s.Spec.ClusterIP != corev1.ClusterIPNone:
		return []string{s.Spec.ClusterIP}, nil
	}
	return n.pods(ctx, namespace, service)
}

// pods are the addresses of those behind a Service that has none of its own.
func (n names) pods(ctx context.Context, namespace, service string) (out []string, err error) {
	list, err := n.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		return nil, err
	}
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				out = append(out, e.Addresses...)
			}
		}
	}
	return out, nil
}
