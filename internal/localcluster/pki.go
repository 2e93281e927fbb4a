package localcluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/utils/clock"
)

// certificateLifetime is how long the certificates of a throw-away cluster hold.
const certificateLifetime = 30 * 24 * time.Hour

// authority signs every certificate of one cluster.
type authority struct {
	dir   string
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
	caPEM []byte
	now   time.Time
}

// keyPair is a certificate and its key as PEM and as files.
type keyPair struct {
	cert, key         []byte
	certFile, keyFile string
}

// newAuthority makes a certificate authority whose files (ca.crt, ca.key) lie in dir.
func newAuthority(dir string) (*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the folder of certificates: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating the key of the certificate authority: %w", err)
	}
	a := &authority{dir: dir, key: key, now: clock.RealClock{}.Now()}
	template, err := a.template(pkix.Name{CommonName: "local-cluster-ca"})
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	pair, cert, err := a.sign("ca", template, template, key)
	if err != nil {
		return nil, err
	}
	a.cert, a.caPEM = cert, pair.cert
	return a, nil
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// client issues a client certificate for a Kubernetes user and its groups.
func (a *authority) client(name, user string, groups ...string) (keyPair, error) {
	template, err := a.template(pkix.Name{CommonName: user, Organization: groups})
	if err != nil {
		return keyPair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(name, template)
}

// server issues a certificate for a server of this machine under further names and addresses; etcd
// uses its own as a client too.
func (a *authority) server(name string, names ...string) (keyPair, error) {
	template, err := a.template(pkix.Name{CommonName: name})
	if err != nil {
		return keyPair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.DNSNames = []string{"localhost"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), serviceIP}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return a.issue(name, template)
}

func (a *authority) issue(name string, template *x509.Certificate) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("generating the key of %s: %w", name, err)
	}
	pair, _, err := a.sign(name, template, a.cert, key)
	return pair, err
}

func (a *authority) template(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("choosing a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    a.now.Add(-time.Minute),
		NotAfter:     a.now.Add(certificateLifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}, nil
}

func (a *authority) sign(
	name string, template, parent *x509.Certificate, key *ecdsa.PrivateKey,
) (keyPair, *x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), a.key)
	if err != nil {
		return keyPair{}, nil, fmt.Errorf("signing the certificate of %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return keyPair{}, nil, fmt.Errorf("reading the certificate of %s: %w", name, err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return keyPair{}, nil, err
	}
	pair := keyPair{
		cert:     pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:      keyPEM,
		certFile: a.file(name + ".crt"),
		keyFile:  a.file(name + ".key"),
	}
	if err := os.WriteFile(pair.certFile, pair.cert, 0o600); err != nil {
		return keyPair{}, nil, fmt.Errorf("writing the certificate of %s: %w", name, err)
	}
	if err := os.WriteFile(pair.keyFile, pair.key, 0o600); err != nil {
		return keyPair{}, nil, fmt.Errorf("writing the key of %s: %w", name, err)
	}
	return pair, cert, nil
}

// signingKey makes the key pair that signs service account tokens.
func (a *authority) signingKey(name string) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("generating the key %s: %w", name, err)
	}
	private, err := encodeKey(key)
	if err != nil {
		return keyPair{}, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return keyPair{}, fmt.Errorf("encoding the key %s: %w", name, err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	pair := keyPair{cert: public, key: private, certFile: a.file(name + ".pub"), keyFile: a.file(name + ".key")}
	if err := os.WriteFile(pair.certFile, public, 0o600); err != nil {
		return keyPair{}, fmt.Errorf("writing the key %s: %w", name, err)
	}
	if err := os.WriteFile(pair.keyFile, private, 0o600); err != nil {
		return keyPair{}, fmt.Errorf("writing the key %s: %w", name, err)
	}
	return pair, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
