package auth

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// Where a pod finds the API server and what it needs to speak to it.
const (
	inClusterURL = "https://kubernetes.default.svc"
	accountDir   = "/var/run/secrets/kubernetes.io/serviceaccount/"
)

// reviewLimit bounds one TokenReview.
const reviewLimit = 10 * time.Second

// answerLimit bounds the answer of the API server in bytes.
const answerLimit = 1 << 20

// APIServer reviews tokens by the TokenReview API. Its own identity needs the
// verb create on tokenreviews (the ClusterRole system:auth-delegator has it).
type APIServer struct {
	url, tokenFile string
	client         *http.Client
}

// InCluster is the API server of the pod's cluster.
func InCluster() (*APIServer, error) {
	return NewAPIServer(inClusterURL, accountDir+"ca.crt", accountDir+"token")
}

// NewAPIServer is an API server at a URL. caFile holds its authorities as PEM,
// tokenFile the plugin's own token, which is read again for every review.
func NewAPIServer(url, caFile, tokenFile string) (*APIServer, error) {
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("reading the CA certificates of the API server: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("reading the CA certificates of the API server: %s contains no certificate", caFile)
	}
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true,
	}
	return &APIServer{
		url: strings.TrimSuffix(url, "/") + "/apis/authentication.k8s.io/v1/tokenreviews", tokenFile: tokenFile,
		client: &http.Client{Transport: transport, Timeout: reviewLimit},
	}, nil
}

// tokenReview is what of authentication.k8s.io/v1 is needed.
type tokenReview struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Spec       reviewSpec   `json:"spec"`
	Status     reviewStatus `json:"status,omitzero"`
}

type reviewSpec struct {
	Token     string   `json:"token"`
	Audiences []string `json:"audiences"`
}

type reviewStatus struct {
	Authenticated bool `json:"authenticated"`
	User          struct {
		Username string `json:"username"`
	} `json:"user"`
	Audiences []string `json:"audiences"`
	Error     string   `json:"error"`
}

// Review asks the API server about a token.
func (a *APIServer) Review(ctx context.Context, token, audience string) (Review, error) {
	own, err := os.ReadFile(a.tokenFile)
	if err != nil {
		return Review{}, fmt.Errorf("reading the plugin's own token: %w", err)
	}
	body, err := json.Marshal(tokenReview{
		APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview",
		Spec: reviewSpec{Token: token, Audiences: []string{audience}},
	})
	if err != nil {
		return Review{}, fmt.Errorf("encoding the TokenReview: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url, bytes.NewReader(body))
	if err != nil {
		return Review{}, fmt.Errorf("requesting a TokenReview: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(own)))
	return a.createReview(req)
}

func (a *APIServer) createReview(req *http.Request) (review Review, err error) {
	resp, err := a.client.Do(req)
	if err != nil {
		return Review{}, fmt.Errorf("requesting a TokenReview: %w", err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode/100 != 2 {
		return Review{}, fmt.Errorf("requesting a TokenReview: the API server returned %s", resp.Status)
	}
	var got tokenReview
	if err := json.NewDecoder(io.LimitReader(resp.Body, answerLimit)).Decode(&got); err != nil {
		return Review{}, fmt.Errorf("decoding the TokenReview: %w", err)
	}
	s := got.Status
	return Review{Authenticated: s.Authenticated, Username: s.User.Username, Audiences: s.Audiences, Problem: s.Error}, nil
}
