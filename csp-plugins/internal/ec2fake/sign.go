package ec2fake

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Signature Version 4, written from its public description ("Create a signed AWS
// API request" in the AWS IAM user guide): a canonical form of the request is
// hashed into a text that is signed with a key made from the secret, the day,
// the region and the service.

const algorithm = "AWS4-HMAC-SHA256"

// authorization is what the header of that name contains.
type authorization struct {
	access, day, region, service string
	signed                       []string
	signature                    string
}

// parseAuthorization reads the header.
func parseAuthorization(header string) (authorization, error) {
	fields, ok := strings.CutPrefix(header, algorithm+" ")
	if !ok {
		return authorization{}, fmt.Errorf("the authorization %q is not %s", header, algorithm)
	}
	part := map[string]string{}
	for field := range strings.SplitSeq(fields, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		part[key] = value
	}
	scope := strings.Split(part["Credential"], "/")
	if len(scope) != 5 || scope[4] != "aws4_request" || part["SignedHeaders"] == "" || part["Signature"] == "" {
		return authorization{}, errors.New("the authorization lacks its credential scope, headers or signature")
	}
	return authorization{
		access: scope[0], day: scope[1], region: scope[2], service: scope[3],
		signed: strings.Split(part["SignedHeaders"], ";"), signature: part["Signature"],
	}, nil
}

// signature is what a request must be signed with.
func signature(r *http.Request, body []byte, a authorization, secret string) string {
	date := r.Header.Get("X-Amz-Date")
	scope := strings.Join([]string{a.day, a.region, a.service, "aws4_request"}, "/")
	text := strings.Join([]string{algorithm, date, scope, digest([]byte(canonical(r, body, a.signed)))}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range []string{a.day, a.region, a.service, "aws4_request"} {
		key = sum(key, part)
	}
	return hex.EncodeToString(sum(key, text))
}

// canonical is the one form of a request that both sides write.
func canonical(r *http.Request, body []byte, signed []string) string {
	path := r.URL.EscapedPath()
	if path == "" {
		path = "/"
	}
	var headers strings.Builder
	for _, name := range signed {
		value := strings.Join(r.Header.Values(name), ",")
		if name == "host" {
			value = r.Host
		}
		if name == "content-length" && value == "" {
			value = fmt.Sprint(len(body))
		}
		headers.WriteString(name + ":" + strings.Join(strings.Fields(value), " ") + "\n")
	}
	return strings.Join([]string{r.Method, path, canonicalQuery(r.URL.Query()), headers.String(), strings.Join(signed, ";"), digest(body)}, "\n")
}

func canonicalQuery(values url.Values) string {
	var pairs []string
	for key, list := range values {
		for _, value := range list {
			pairs = append(pairs, strings.ReplaceAll(url.QueryEscape(key), "+", "%20")+"="+strings.ReplaceAll(url.QueryEscape(value), "+", "%20"))
		}
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "&")
}

func digest(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

func sum(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
