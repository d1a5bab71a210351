{{- define "gvList" -}}
# API reference
{{ range . }}
{{ template "gvDetails" . }}
{{- end }}
{{ end -}}
