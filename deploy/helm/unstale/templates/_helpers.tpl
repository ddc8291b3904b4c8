{{- /* YAML of any value. toYaml alone returns nothing for a string that YAML cannot have. */ -}}
{{- define "unstale.yaml" -}}
{{- toYaml . | required "a value has a control character, which YAML does not permit" -}}
{{- end -}}

{{- define "unstale.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if not (regexMatch "^[a-z]" .Release.Name) -}}{{- /* the name of a Service begins with a letter */ -}}
{{- printf "unstale-%s" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else if contains "unstale" .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-unstale" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "unstale.selector" -}}
app.kubernetes.io/name: unstale
app.kubernetes.io/instance: {{ toYaml .Release.Name }}
{{- end -}}

{{- define "unstale.labels" -}}
{{ include "unstale.selector" . }}
app.kubernetes.io/version: {{ toYaml .Chart.AppVersion }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "unstale.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "unstale.map" -}}
{{- with .Values.map -}}
{{- if and .text .existingConfigMap -}}{{- fail "map.text and map.existingConfigMap are set: set one of them" -}}{{- end -}}
{{- if not (or .text .existingConfigMap) -}}{{- fail "no map: set map.existingConfigMap, or map.text with --set-file map.text=mapping.yaml" -}}{{- end -}}
{{- .existingConfigMap | default (printf "%s-map" (include "unstale.fullname" $)) -}}
{{- end -}}
{{- end -}}

{{- /* Secrets that have a variant with _FILE. */ -}}
{{- define "unstale.withFile" -}}
MYSQL_DSN|REDIS_URL|REDIS_URL_STATE|UNSTALE_MESSAGE_KEY|UNSTALE_(AUDIT_MYSQL|CONSOLE)_DSN|UNSTALE_(AUDIT|CONSOLE)_REDIS_URL
{{- end -}}

{{- /* "true" if the secret .name is a file. */ -}}
{{- define "unstale.asFile" -}}
{{- if and .root.Values.secretsAsFiles (regexMatch (printf "^(%s)$" (include "unstale.withFile" .)) .name) }}true{{ end -}}
{{- end -}}

{{- /* The variables of a container with .secrets. Kubernetes expands $(NAME) in values, and $$ is one $. */ -}}
{{- define "unstale.env" -}}
{{- $root := .root -}}
{{- range $name, $value := $root.Values.env -}}
{{- if or (regexMatch (printf "^(%s|OTEL_EXPORTER_OTLP_([A-Z]+_)?HEADERS)$" (include "unstale.withFile" .)) $name) (hasKey $root.Values.secrets $name) -}}
{{- fail (printf "env.%s: it is a secret; name an existing Secret in secrets.%s" $name $name) -}}
{{- end -}}
{{- if has $name (list "UNSTALE_MAP" "UNSTALE_LISTEN") -}}
{{- fail (printf "env.%s: the chart sets it; leave it out" $name) -}}
{{- end }}
{{ list (dict "name" $name "value" (replace "$" "$$" $value)) | include "unstale.yaml" }}
{{- end -}}
{{- range $name, $from := .secrets }}
{{- if hasKey $root.Values.env (printf "%s_FILE" $name) -}}
{{- fail (printf "env.%s_FILE and secrets.%s give one secret; remove one of them" $name $name) -}}
{{- end }}
{{- if include "unstale.asFile" (dict "root" $root "name" $name) }}
- name: {{ $name }}_FILE
  value: /run/secrets/unstale/{{ $name }}
{{- else }}
- name: {{ toYaml $name }}
  valueFrom: { secretKeyRef: { name: {{ toYaml $from.name }}, key: {{ toYaml $from.key }} } }
{{- end }}
{{- end }}
{{- end -}}

{{- /* The sources of the volume of a container with .secrets; empty if it needs none. */ -}}
{{- define "unstale.sources" -}}
{{- range $name, $from := .secrets }}
{{- if include "unstale.asFile" (dict "root" $.root "name" $name) }}
{{- if hasKey $.root.Values.files $name -}}
{{- fail (printf "files.%s: with secretsAsFiles, secrets.%s has this path; choose another name" $name $name) -}}
{{- end }}
- secret: { name: {{ toYaml $from.name }}, items: [{ key: {{ toYaml $from.key }}, path: {{ toYaml $name }} }] }
{{- end }}
{{- end }}
{{- range $path, $from := .root.Values.files }}
- secret: { name: {{ toYaml $from.name }}, items: [{ key: {{ toYaml $from.key }}, path: {{ toYaml $path }} }] }
{{- end }}
{{- end -}}

{{- define "unstale.securityContext" -}}
{ allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: [ALL] } }
{{- end -}}
