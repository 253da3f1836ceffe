import { settingRows } from '../usage/settings-table.ts'

/** The two services that can be installed. */
export type ServiceName = 'device-agent' | 'device-gateway'

/** Secrets belong into files of their own, and systemd says where the data is. */
const LEFT_OUT =
  /^(?:SVC_AUTHTOKEN|SVC_AUTHTOKEN_JOINED|SVC_JOIN_FILE|SVC_API_KEY|AGENT_API_TOKEN|\w+_DATA_DIR)$/
const NAMES: Record<ServiceName, RegExp> = {
  'device-agent': /^(?:SVC_|AGENT_|LOG_)/,
  'device-gateway': /^(?:GATEWAY_|LOG_)/,
}

/** The initial settings file of a service: all settings, as comments. */
export function envTemplate(service: ServiceName): string {
  const rows = settingRows().filter(({ name }) => NAMES[service].test(name) && !LEFT_OUT.test(name))
  const token =
    service === 'device-agent'
      ? '# Store the authtoken in /etc/credstore/svc-authtoken, not in this file.\n'
      : ''
  const settings = rows.map(({ name, fallback, isComputed, meaning }) => {
    // Computed values depend on other settings, and folders on the place of the program: they have no fixed
    // default.
    return `\n# ${meaning}\n#${name}=${isComputed ? '' : fallback}\n`
  })
  return `# Settings of the service, one NAME=value per line. Restart the service after a change.\n${token}${settings.join('')}`
}
