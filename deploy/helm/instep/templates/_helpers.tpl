{{- define "instep.labels" -}}
app.kubernetes.io/name: instep
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "instep.image" -}}
image: {{ printf "%s:%s" .Values.image.repository .Values.image.tag | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "instep.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* The project as it runs here: on the cluster of this chart, if that is wanted. */}}
{{- define "instep.project" -}}
{{- $project := deepCopy .Values.project -}}
{{- if .Values.spark.enabled -}}
{{- $config := dict
  "spark.driver.host" "${POD_IP}"
  "spark.driver.bindAddress" "0.0.0.0"
  "spark.cores.max" (.Values.spark.coresMax | toString)
  "spark.executor.memory" .Values.spark.memory
  "spark.pyspark.python" "/opt/instep/bin/python" -}}
{{- $master := printf "spark://%s-spark:7077" .Release.Name -}}
{{- $project = mergeOverwrite $project (dict "spark" (dict "master" $master "config" $config)) -}}
{{- end -}}
{{ toYaml $project }}
{{- end }}

{{/* What every container that runs `instep` has: its project, a folder that it may write, and the secrets. */}}
{{- define "instep.environment" -}}
envFrom:
  - secretRef: {name: {{ .Values.secret | quote }}}
env:
  - name: POD_IP
    valueFrom: {fieldRef: {fieldPath: status.podIP}}
  - {name: HOME, value: /project}
volumeMounts:
  - {name: work, mountPath: /project}
  - {name: project, mountPath: /project/instep.yaml, subPath: instep.yaml, readOnly: true}
  - {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "instep.volumes" -}}
volumes:
  - {name: work, emptyDir: {}}
  - {name: tmp, emptyDir: {}}
  - name: project
    configMap: {name: {{ .Release.Name }}-project}
{{- end }}
