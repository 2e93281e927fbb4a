package redact

import (
	"bytes"
	"regexp"
	"strings"
)

// format is that of a vendor's tokens.
type format struct {
	// prefixes are what they begin with, in their case.
	prefixes string
	// suffix is a pattern of what follows.
	suffix string
	// alone means that the prefix is short: a letter or digit before it makes it a part of
	// something else.
	alone bool
	// before is a pattern of exactly back bytes in front of the prefix.
	before string
	back   int
}

// Patterns of what follows a prefix. Lengths are below those of the vendors, which change
// them.
const (
	word10   = `\w{10,}`
	letter16 = `[A-Za-z0-9]{16,}`
	letter20 = `[A-Za-z0-9]{20,}`
	url10    = `[\w-]{10,}`
	url16    = `[\w-]{16,}`
	url20    = `[\w-]{20,}`
	dots16   = `[\w.-]{16,}`
	hex32    = `[a-f0-9]{32,}`
	base16   = `[\w+/=-]{16,}`
	base40   = `[\w+/=-]{40,}`
	hash     = `[^\s:"'\\]{16,}`
)

// formats are those of the vendors' documentation. Where no page is named, they are from
// https://github.com/gitleaks/gitleaks/blob/v8.30.1/config/gitleaks.toml and
// https://github.com/google/osv-scalibr/tree/v0.5.3/veles/secrets.
var formats = []format{
	// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html
	{prefixes: "AKIA ASIA ABIA ACCA", suffix: `[A-Z0-9]{12,}`},
	{prefixes: "IQoJb3JpZ2lu FwoGZXIvYXdz", suffix: base40},
	{prefixes: "ABSK", suffix: base40, alone: true},
	// https://cloud.google.com/docs/authentication/token-types, https://cloud.google.com/docs/authentication/api-keys
	{prefixes: "AIza GOCSPX-", suffix: url16},
	{prefixes: "ya29.", suffix: dots16},
	{prefixes: "1//0", suffix: `[\w-]{32,}`, alone: true},
	// https://learn.microsoft.com/purview/sit-defn-azure-ad-client-secret, https://github.com/microsoft/security-utilities
	{prefixes: "Q~", before: `[\w~.-]{3}\d`, back: 4, suffix: `[\w~.-]{24,}`},
	{prefixes: "JQQJ9", before: `[A-Za-z0-9+/]{52}`, back: 52, suffix: `[\w+/=-]{10,}`},
	{prefixes: "AZDO", before: `[A-Za-z0-9]{76}`, back: 76, suffix: `[A-Za-z0-9]{4}`},
	{prefixes: "+ASt", before: `[A-Za-z0-9+/]{76}`, back: 76, suffix: `[A-Za-z0-9+/]{4,}={0,2}`},
	// https://docs.github.com/authentication/keeping-your-account-and-data-secure/about-authentication-to-github
	{prefixes: "ghp_ gho_ ghu_ ghr_", suffix: letter16},
	{prefixes: "ghs_ github_pat_", suffix: dots16},
	// https://docs.gitlab.com/security/tokens/#token-prefixes
	{prefixes: "glpat- gloas- gldt- glrt- glrtr- glcbt- glptt- glft- glimt- glagent- glwt- glsoat- glffct-", suffix: dots16},
	{prefixes: "GR1348941", suffix: url16},
	// https://docs.slack.dev/authentication/tokens
	{prefixes: "xoxa- xoxb- xoxc- xoxe- xoxo- xoxp- xoxr- xoxs- xapp-", suffix: url10},
	{prefixes: "xoxd- xoxe.", suffix: `[\w%+/=.-]{10,}`},
	// https://platform.openai.com/docs/api-reference/authentication, https://docs.anthropic.com/en/api/overview
	{prefixes: "sk-", suffix: `(?:(?:proj|svcacct|admin|ant|or|None)-[\w-]{16,}|[A-Za-z0-9]{20,})`, alone: true},
	// https://huggingface.co/docs/hub/security-tokens, https://docs.nvidia.com/ngc/gpu-cloud/ngc-user-guide
	{prefixes: "hf_", suffix: url16, alone: true},
	{prefixes: "nvapi-", suffix: url16},
	// Groq, xAI, Perplexity, Replicate, LangSmith; organizations of Hugging Face.
	{prefixes: "gsk_ xai- pplx- r8_ api_org_", suffix: letter20, alone: true},
	{prefixes: "lsv2_pt_ lsv2_sk_", suffix: word10},
	// https://developer.hashicorp.com/vault/docs/concepts/tokens#token-prefixes
	{prefixes: "hvs. hvb. hvr.", suffix: url20},
	// https://developer.hashicorp.com/terraform/cloud-docs/users-teams-organizations/api-tokens
	{prefixes: ".atlasv1.", before: `[A-Za-z0-9]{14}`, back: 14, suffix: url16},
	// https://docs.docker.com/security/access-tokens
	{prefixes: "dckr_pat_ dckr_oat_", suffix: url16},
	// https://docs.npmjs.com/about-access-tokens, https://pypi.org/help/#apitoken,
	// https://guides.rubygems.org/api-key-scopes, https://crates.io/settings/tokens
	{prefixes: "npm_", suffix: letter20},
	{prefixes: "pypi-", suffix: `[\w-]{50,}`},
	{prefixes: "rubygems_", suffix: hex32},
	{prefixes: "cio", suffix: `[A-Za-z0-9]{32}`, alone: true},
	// https://docs.stripe.com/keys
	{prefixes: "sk_live_ sk_test_ rk_live_ rk_test_", suffix: word10},
	{prefixes: "whsec_", suffix: base16},
	// https://www.twilio.com/docs/sendgrid/ui/account-and-settings/api-keys, https://www.twilio.com/docs/iam/api-keys
	{prefixes: "SG.", suffix: `[\w-]{16,}\.[\w-]{16,}`},
	{prefixes: "SK", suffix: hex32, alone: true},
	// https://docs.digitalocean.com/reference/api/create-personal-access-token
	{prefixes: "dop_v1_ doo_v1_ dor_v1_", suffix: hex32},
	// https://grafana.com/docs/grafana/latest/administration/service-accounts,
	// https://docs.newrelic.com/docs/apis/intro-apis/new-relic-api-keys, https://docs.sentry.io/account/auth-tokens
	{prefixes: "glsa_ NRAK- NRII-", suffix: url20},
	{prefixes: "glc_", suffix: base40, alone: true},
	{prefixes: "sntrys_ sntryu_", suffix: base16},
	// https://docs.databricks.com/dev-tools/auth/pat, https://tailscale.com/kb/1085/auth-keys
	{prefixes: "dapi", suffix: hex32, alone: true},
	{prefixes: "tskey-", suffix: url16},
	// https://docs.dynatrace.com/docs/manage/identity-access-management/access-tokens-and-oauth-clients
	{prefixes: "dt0c01. dt0s01.", suffix: `[A-Z0-9]{6,}\.[A-Z0-9]{20,}`},
	// https://support.atlassian.com/organization-administration/docs/understand-user-api-tokens
	{prefixes: "ATATT3 ATCTT3", suffix: base16},
	{prefixes: "ATBB", suffix: letter20, alone: true},
	// https://jfrog.com/help/r/jfrog-platform-administration-documentation/access-tokens
	{prefixes: "AKCp cmVmd", suffix: `[A-Za-z0-9]{40,}`, alone: true},
	// Pulumi, Buildkite, SonarQube, Supabase.
	{prefixes: "pul- bkua_ squ_ sqp_ sqa_ sbp_", suffix: hex32, alone: true},
	// Figma, Linear, Notion, Prefect, Alibaba Cloud, Heroku, Fly.io.
	{prefixes: "figd_ lin_api_ ntn_ pnu_ LTAI HRKU- fo1_", suffix: url20, alone: true},
	// Doppler, Postman, CircleCI, Shopify, PlanetScale, 1Password.
	{prefixes: "dp.pt. dp.st.", suffix: dots16, alone: true},
	{prefixes: "PMAK- CCIPAT_ shpat_ shpss_", suffix: url20},
	{prefixes: "pscale_", suffix: `(?:tkn|oauth|pw)_[\w.=-]{20,}`},
	{prefixes: "ops_eyJ", suffix: base40},
	// https://core.telegram.org/bots/api#authorizing-your-bot
	{prefixes: ":AA", before: `\d{8}`, back: 8, suffix: `[\w-]{32,}`},
	// https://docs.redhat.com/documentation/openshift_container_platform: tokens of users.
	{prefixes: "sha256~", suffix: `[\w-]{32,}`},
	// https://age-encryption.org/v1
	{prefixes: "AGE-SECRET-KEY-", suffix: `[A-Z0-9-]{32,}`},
	// JSON Web Tokens (RFC 7519), and the same in base64, as in a Secret.
	{prefixes: "eyJ", suffix: `[\w-]{4,}\.[\w-]+(?:\.[\w-]*){0,3}`},
	{prefixes: "ZXlKaGJHY2lPaU", suffix: base16},
	// JSON in base64, as the credentials of registries and of Google's service accounts.
	{prefixes: "eyJ ewog", suffix: `[\w+/-]{40,}={0,2}`, alone: true},
	// PEM in base64, as in a kubeconfig or a Secret: all but certificates and public keys.
	{prefixes: "LS0tLS1CRUdJTiB", suffix: `(?:[A-CE-PR-Z]|Q(?:Ukl|R1A))[\w+/=-]{16,}`},
	// Hashes of passwords: crypt(5), htpasswd(1), RFC 2307.
	{prefixes: "$1$ $2a$ $2b$ $2y$ $5$ $6$ $7$ $y$ $gy$ $argon2 $apr1$", suffix: hash},
	{prefixes: "{SSHA} {SHA}", suffix: base16},
	{prefixes: "{CRYPT}", suffix: `\S{10,}`},
}

// tokenWindow is how many bytes a pattern of a token looks at. What a token may be made of
// behind it belongs to it.
const tokenWindow = 256

// tokens are one rule for all formats.
func tokens() []rule {
	r := rule{}
	of := map[string][]func(line []byte, sign span) []span{}
	for _, f := range formats {
		for prefix := range strings.FieldsSeq(f.prefixes) {
			sign := strings.ToLower(prefix)
			if of[sign] == nil {
				r.signs = append(r.signs, sign)
			}
			of[sign] = append(of[sign], f.finder(prefix))
		}
	}
	r.find = func(line, lower []byte, sign span) (found []span) {
		for _, find := range of[string(lower[sign.from:sign.to])] {
			found = append(found, find(line, sign)...)
		}
		return found
	}
	return []rule{r}
}

func (f format) finder(prefix string) func(line []byte, sign span) []span {
	pattern := regexp.MustCompile(`^` + f.before + regexp.QuoteMeta(prefix) + f.suffix)
	return func(line []byte, sign span) []span {
		from := sign.from - f.back
		if string(line[sign.from:sign.to]) != prefix || from < 0 || f.alone && !startsWord(line, from) {
			return nil
		}
		m := pattern.FindIndex(line[from:min(len(line), from+tokenWindow)])
		if m == nil {
			return nil
		}
		end := from + m[1]
		for m[1] == tokenWindow && end < len(line) && inToken(line[end]) {
			end++
		}
		return []span{{from, end}}
	}
}

// inToken reports whether a byte can be in a token.
func inToken(b byte) bool { return inName(b) || bytes.IndexByte([]byte("+/=~"), b) >= 0 }

// webhooks are begins of URLs that let anyone in who has them; what follows is secret.
var webhooks = []string{
	// https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
	"hooks.slack.com/", "hooks.slack-gov.com/",
	// https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/add-incoming-webhook
	"webhook.office.com/", "outlook.office.com/webhook/",
	// https://discord.com/developers/docs/resources/webhook
	"discord.com/api/webhooks/", "discordapp.com/api/webhooks/",
	"discord.com/api/v10/webhooks/", "discord.com/api/v9/webhooks/", "discord.com/api/v8/webhooks/",
	// https://developer.pagerduty.com/docs/events-api-v1-overview
	"events.pagerduty.com/integration/", "events.eu.pagerduty.com/integration/",
	"alert.victorops.com/integrations/", // https://help.splunk.com/en/splunk-on-call
	"hooks.zapier.com/hooks/",           // https://zapier.com/help
	"maker.ifttt.com/trigger/",          // https://ifttt.com/maker_webhooks
	"api.telegram.org/bot",              // https://core.telegram.org/bots/api#making-requests
	"webexapis.com/v1/webhooks/incoming/", "open.feishu.cn/open-apis/bot/", "open.larksuite.com/open-apis/bot/",
	"hc-ping.com/", // https://healthchecks.io/docs/http_api
}

// parameters of URLs that let anyone in.
var parameters = []string{
	"sig=", "signature=", "x-amz-signature=", "x-amz-credential=", "x-amz-security-token=", "x-goog-signature=",
	"x-goog-credential=", "awsaccesskeyid=",
}

// addresses are rules for URLs and other addresses of servers.
func addresses() []rule {
	begins := []string{"?", "&", ";", `\u0026`, "%26"}
	var signed, keyed []string
	for _, b := range begins {
		for _, p := range parameters {
			signed = append(signed, b+p)
		}
		keyed = append(keyed, b+"key=", b+"code=", b+"auth=")
	}
	return []rule{
		{[]string{"://"}, login},
		{webhooks, behind(`([^\s"'<>]+)`)},
		{signed, behind(`([^\s&"'\\]+)`)},
		{keyed, behind(`([^\s&"'\\]{16,})`)},
		// https_proxy=user:password@host
		{[]string{"proxy"}, behind(`["']?\s*[:=]\s*["']?([^\s:/@"']+:[^\s@"']+)@`)},
		// user:password@tcp(host)/database: https://github.com/go-sql-driver/mysql#dsn-data-source-name
		{[]string{"@tcp(", "@tcp6(", "@unix("}, before},
	}
}

// port is the one of a server, with a path.
var port = regexp.MustCompile(`^\d{1,5}/`)

// login finds user and password of a URL. What has a port and a path has none: an @ in it
// is of an image's digest or of a path.
func login(line, _ []byte, sign span) []span {
	rest := line[sign.to:min(len(line), sign.to+window)]
	goesOn := len(rest) == window
	if end := bytes.IndexAny(rest, " \t\r\""); end >= 0 {
		rest, goesOn = rest[:end], false
	}
	first := bytes.IndexAny(rest, ":/?#@")
	if first < 0 || rest[first] != ':' && (rest[first] != '@' || first == 0) {
		return nil
	}
	at := bytes.LastIndexByte(rest, '@')
	switch {
	case rest[first] == '@':
		return []span{{sign.to, sign.to + first}}
	case port.Match(rest[first+1:]):
		return nil
	case goesOn:
		return []span{{sign.to, len(line)}}
	case at < 0:
		return nil
	}
	return []span{{sign.to, sign.to + at}}
}

// before finds user and password in front of a sign.
func before(line, _ []byte, sign span) []span {
	s := span{sign.from, sign.from}
	for s.from > 0 && sign.from-s.from < window && bytes.IndexByte([]byte(" \t\"'="), line[s.from-1]) < 0 {
		s.from--
	}
	if bytes.IndexByte(line[s.from:s.to], ':') < 0 {
		return nil
	}
	return []span{s}
}
