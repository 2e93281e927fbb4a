package provider

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// unknownToken returns what was sent to a plugin that does not know its caller, and what
// to set: most often the plugin's code does not name the token's audience.
func (e Endpoint) unknownToken() string {
	file := e.token()
	if file == "" {
		return "no token was sent: set tokenFile (--csp-plugin-token-file)"
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	audiences := audiencesOf(string(text))
	if len(audiences) == 0 {
		return ""
	}
	return fmt.Sprintf("the token has the audience %s, which the plugin's TokenReview must name in spec.audiences. "+
		"A TokenReview without audiences accepts only tokens for the audience of the API server, such as %s", strings.Join(audiences, ", "), ownToken)
}

// audiencesOf reads the audiences of a token without verifying it.
func audiencesOf(token string) []string {
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 {
		return nil
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil
	}
	var several struct {
		Audiences []string `json:"aud"`
	}
	if json.Unmarshal(payload, &several) == nil {
		return several.Audiences
	}
	var one struct {
		Audience string `json:"aud"`
	}
	if json.Unmarshal(payload, &one) != nil || one.Audience == "" {
		return nil
	}
	return []string{one.Audience}
}
