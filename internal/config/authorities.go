package config

import (
	"crypto/x509"
	"fmt"
	"os"
)

// ReadAuthorities reads the authorities of certificates that a PEM file holds.
func ReadAuthorities(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s contains no certificate", path)
	}
	return pool, nil
}
