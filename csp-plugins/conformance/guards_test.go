package conformance_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
)

// guards runs an example with the arguments of the manifest of examples/deploy: it
// speaks TLS and admits the janitor alone, and it does not start on a network
// without either.
func guards(t *testing.T, command func() *exec.Cmd) {
	t.Helper()
	for _, args := range [][]string{{"--listen=:0"}, {"--listen=0.0.0.0:0", "--caller="}} {
		cmd := command()
		cmd.Args = append(cmd.Args, args...)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "over a network, --tls-cert-file") {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	}
	r, url := newRack(t, "a")
	dir := t.TempDir()
	cert := certificate(t, dir)
	p := &example{t: t, command: command, tls: &tls.Config{RootCAs: cert, ServerName: "rack-plugin.test", MinVersion: tls.VersionTLS12}}
	p.args = append(manifest(t, dir), "--controller="+url, "--api-server="+apiServer(t, dir), "--account-dir="+dir)
	t.Cleanup(p.kill)
	conn := p.start()
	for _, tt := range []struct {
		token string
		want  codes.Code
	}{
		{"", codes.Unauthenticated},
		{"Bearer nobody", codes.Unauthenticated},
		{"Bearer janitor for somebody else", codes.Unauthenticated},
		{"Bearer stranger", codes.PermissionDenied},
		{"Bearer not to be asked", codes.Unavailable},
		{"Bearer janitor", codes.OK},
	} {
		ctx := t.Context()
		if tt.token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", tt.token)
		}
		before := r.taken()
		_, err := v1.NewCSPPluginServiceClient(conn).SendRebootSignal(ctx, &v1.SendRebootSignalRequest{NodeName: "a", IdempotencyKey: "k" + tt.token}, grpc.WaitForReady(true))
		if status.Code(err) != tt.want || (r.taken() > before) != (tt.want == codes.OK) {
			t.Errorf("a caller with %q: %v, and %d more requests, want %s", tt.token, err, r.taken()-before, tt.want)
		}
	}
}

// manifest are the arguments of the Deployment in examples/deploy, with its files in
// dir, without those that name an address.
func manifest(t *testing.T, dir string) []string {
	t.Helper()
	text, err := os.ReadFile("../../examples/deploy/rack-plugin.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		var d appsv1.Deployment
		if err := yaml.Unmarshal([]byte(doc), &d); err != nil || d.Kind != "Deployment" {
			continue
		}
		args := d.Spec.Template.Spec.Containers[0].Args
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], d.Spec.Template.Spec.Containers[0].VolumeMounts[0].MountPath, dir)
		}
		return slices.DeleteFunc(args, func(a string) bool { return strings.HasPrefix(a, "--listen=") || strings.HasPrefix(a, "--controller=") })
	}
	t.Fatal("the manifest has no Deployment")
	return nil
}

// certificate puts one for rack-plugin.test into dir.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"rack-plugin.test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	writeFile(t, dir, "tls.crt", cert)
	writeFile(t, dir, "tls.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return pool
}

// apiServer reviews tokens that name their owner, for callers with the token in dir; it
// returns its URL.
func apiServer(t *testing.T, dir string) string {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || r.URL.Path != "/apis/authentication.k8s.io/v1/tokenreviews" ||
			r.Header.Get("Authorization") != "Bearer own" || review.Spec.Token == "not to be asked" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		known := map[string]string{
			"janitor": "system:serviceaccount:nvsentinel:janitor", "janitor for somebody else": "system:serviceaccount:nvsentinel:janitor",
			"stranger": "system:serviceaccount:acme:default",
		}[review.Spec.Token]
		review.Status.Authenticated, review.Status.User.Username = known != "", known
		if !strings.HasSuffix(review.Spec.Token, "else") {
			review.Status.Audiences = review.Spec.Audiences
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	writeFile(t, dir, "ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	writeFile(t, dir, "token", []byte("own\n"))
	return server.URL
}

func writeFile(t *testing.T, dir, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}
