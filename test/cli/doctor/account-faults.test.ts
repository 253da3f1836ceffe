import { cpSync, mkdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect } from 'vitest'
import type { Agent } from '../../../src/agent/agent.ts'
import { resetDeviceId } from '../../../src/agent/device/device-id.ts'
import { NgrokConnector } from '../../../src/agent/ngrok-connector.ts'
import type { ClientVersion } from '../../../src/settings/forms.ts'
import { FAST_TIMINGS } from '../../helpers/agent-in-folder.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { eventually } from '../../helpers/eventually.ts'
import { type FaultyDevice, faultTable, serveHello } from '../../helpers/fault-table.ts'
import { bind, connectSdk, startGateway } from '../../helpers/running-gateway.ts'
import { somePorts } from '../../helpers/some-ports.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

/** A name of this machine that its certificates do not have. */
const tokenFrom = (name: string, text: string) => (device: FaultyDevice) => {
  device.settings.SVC_AUTHTOKEN_FILE = device.file(name, text)
}
/** A valid token to the file that the agent watches. */
const writeToken = ({ on, settings }: FaultyDevice) => {
  const path = settings.SVC_AUTHTOKEN_FILE ?? ''
  rmSync(path, { recursive: true, force: true })
  writeFileSync(path, on.authtoken.reveal(), { mode: 0o600 })
}
const WRITE =
  /^Write an authtoken to \/\S+, readable by the agent\. No restart is needed\. For a new authtoken: Run device-agent gateway invite --name NAME on the gateway and device-agent join on this device\. NAME is the name of this device\. If the device has joined before, add --replace\. All tunnels are offline/
/** Writes the file that systemd passes to the service as a credential. Returns its path. */
const writeCredential = (device: FaultyDevice) => {
  mkdirSync(join(device.on.folder, 'credstore'), { recursive: true })
  return device.file('credstore/svc-authtoken', device.on.authtoken.reveal())
}
const UNPASSED = {
  headline: /^The tunnel does not work\. No authtoken is set\.$/,
  check: 'authtoken',
  detail: /^systemd did not pass the credential \/\S+ to the agent$/,
  // The agent cannot see the file. The command `status` adds it.
  statusRemedy: /./,
}
const UNUSABLE = {
  headline: /^The tunnel does not work\. Cannot use the authtoken file/,
  check: 'authtoken',
  remedy: WRITE,
  mend: writeToken,
}
const REFUSED = {
  headline: /^The tunnel does not work\. The gateway refuses the authtoken\.$/,
  check: 'link',
  remedy:
    /^Run device-agent gateway invite --name NAME on the gateway and device-agent join on this device\. NAME is the name of this device\. Or write a valid authtoken to \/\S+\. No restart is needed\. All tunnels are offline until then\.$/,
}

/** The account of the device at the gateway. */
function accountOf({ on }: FaultyDevice) {
  const { parts } = on.gateway
  const account = parts.botUsers.findByName('site')
  if (!account) throw new Error('the device is not provisioned')
  return { ...parts, account }
}

/** The credential of the device at the gateway. */
function credentialOf(device: FaultyDevice) {
  const { credentials, account, issuer } = accountOf(device)
  const [id = ''] = credentials.idsOfOwner(account.id)
  const credential = credentials.get(id)
  if (!credential) throw new Error('the device has no credential')
  return { issuer, credential }
}

/** Another authtoken of the gateway for the same names. */
async function newToken(device: FaultyDevice): Promise<void> {
  const { issuer, account } = accountOf(device)
  const acl = ['bind:*.site.test']
  const { authtoken } = await issuer.createCredential({ ownerId: account.id, acl })
  device.file('authtoken', authtoken.reveal())
}

const enable = (device: FaultyDevice, active: boolean) => {
  const { issuer, account } = accountOf(device)
  return issuer.updateBotUser(account, { active })
}

faultTable('the authtoken', {
  'systemd does not pass the authtoken to the service': {
    settings: (device) => {
      writeCredential(device)
      device.settings.SVC_AUTHTOKEN_FILE = undefined
    },
    cause: (device) => {
      device.settings.SVC_AUTHTOKEN_FILE = join(device.on.folder, 'credstore/svc-authtoken')
    },
    ...UNPASSED,
    remedy:
      /^Set SVC_AUTHTOKEN in \/etc\/device-agent\/agent\.env to the authtoken of this file, then run sudo systemctl restart device-agent\./,
    mend: (device) => device.start({ SVC_AUTHTOKEN: device.on.authtoken.reveal() }),
  },
  'the authtoken is written after the start of the service': {
    settings: { SVC_AUTHTOKEN_FILE: undefined },
    cause: async (device) => {
      const path = join(device.on.folder, 'credstore/svc-authtoken')
      const { startedAt } = device.agent.status()
      // The clock of the file system is a few milliseconds late.
      await eventually(() => {
        writeCredential(device)
        expect(statSync(path).ctimeMs).toBeGreaterThan(startedAt)
      })
      device.settings.SVC_AUTHTOKEN_FILE = path
    },
    ...UNPASSED,
    remedy: /^Restart the service: sudo systemctl restart device-agent\.$/,
    mend: (device) => device.start(),
  },
  'a setting for the file of the authtoken is added after the start': {
    settings: { SVC_AUTHTOKEN_FILE: undefined },
    cause: (device) => {
      device.settings.SVC_AUTHTOKEN_FILE = device.on.tokenPath
    },
    ...UNPASSED,
    detail: /^the running agent does not use \/\S+$/,
    remedy: /^Restart the agent\.$/,
    mend: (device) => device.start(),
  },
  'no authtoken is set': {
    settings: { SVC_AUTHTOKEN_FILE: undefined },
    headline: /^The tunnel does not work\. No authtoken is set\.$/,
    check: 'authtoken',
    detail: /^no authtoken is set$/,
    remedy:
      /^Run device-agent gateway invite --name NAME on the gateway and device-agent join on this device\. NAME is the name of this device\. If the device has joined before, add --replace\. For the hosted service, copy an authtoken from its dashboard\. With an authtoken at hand, run device-agent service install --token-stdin, or set SVC_AUTHTOKEN_FILE and/,
    mend: (device) => device.start({ SVC_AUTHTOKEN_FILE: device.on.tokenPath }),
  },
  'the file is missing': {
    settings: (device) => {
      device.settings.SVC_AUTHTOKEN_FILE = join(device.on.folder, 'later')
    },
    headline: /^The tunnel does not work\. The authtoken file is missing\.$/,
    check: 'authtoken',
    detail: /later: the file is missing$/,
    remedy: WRITE,
    mend: writeToken,
  },
  'the file is empty': {
    settings: tokenFrom('empty', ''),
    ...UNUSABLE,
    detail: /contains no authtoken$/,
  },
  'the file cannot be read': {
    settings: (device) => {
      const path = join(device.on.folder, 'folder')
      mkdirSync(path)
      device.settings.SVC_AUTHTOKEN_FILE = path
    },
    ...UNUSABLE,
    headline: /^The tunnel does not work\. Cannot use the authtoken file: it is a directory\.$/,
    detail: /it is a directory$/,
  },
  'the file is emptied while the agent runs': {
    cause: (device) => device.file('authtoken', ''),
    ...UNUSABLE,
    headline: /^The tunnel works\. Cannot use the authtoken file/,
    detail: /contains no authtoken$/,
    statusRemedy: /^Write an authtoken to \//,
  },
  'it is mistyped': {
    settings: tokenFrom('typo', 'my-token'),
    ...REFUSED,
    remedy:
      /NAME is the name of this device\. If the device has joined before, add --replace\. Or write /,
    detail: /The authtoken is malformed/,
    mend: writeToken,
  },
  'it is of another gateway': {
    settings: async (device) => {
      const other = await startGateway()
      tokenFrom('other', other.authtoken.reveal())(device)
    },
    ...REFUSED,
    detail: /It was deleted, or it belongs to another service/,
    mend: writeToken,
  },
  'it is wrong in a setting': {
    settings: { SVC_AUTHTOKEN_FILE: undefined, SVC_AUTHTOKEN: 'my-token' },
    ...REFUSED,
    detail: /The authtoken is malformed/,
    remedy: /Or set SVC_AUTHTOKEN to a valid authtoken and restart the agent\. All tunnels are off/,
    mend: (device) => device.start({ SVC_AUTHTOKEN: device.on.authtoken.reveal() }),
  },
  'it is revoked': {
    cause: (device) => {
      const { issuer, credential } = credentialOf(device)
      return issuer.deleteCredential(credential)
    },
    ...REFUSED,
    detail: /It was deleted, or it belongs to another service/,
    mend: newToken,
  },
  'its account is disabled': {
    cause: (device) => enable(device, false),
    headline: /^The tunnel does not work\. The gateway has disabled the account of this device\.$/,
    check: 'link',
    detail: /is inactive/,
    remedy:
      /^The account may not connect\. Ask the owner of the gateway to enable the account\. All tun/,
    mend: (device) => enable(device, true),
  },
})

const changeAcl = (device: FaultyDevice, acl: readonly string[]) => {
  const { issuer, credential } = credentialOf(device)
  return issuer.updateCredential(credential, { acl })
}
const changeQuota = (device: FaultyDevice, online_endpoints: number | null) => {
  const { issuer, account } = accountOf(device)
  return issuer.updateBotUser(account, { quotas: { online_endpoints } })
}
const clientsBelow = (...refuseBelow: ClientVersion[]) => ({
  gateway: { clients: { region: 'test', warnBelow: [], refuseBelow } },
})
const TOO_OLD = {
  headline: /^The tunnel does not work\. The gateway does not support this agent version\.$/,
  check: 'link',
  remedy: /^Update the agent\. The gateway does not support this version\.$/,
}

/** Another session of the same account, which holds a name until it is closed. */
const holders = new WeakMap<FaultyDevice, Awaited<ReturnType<typeof bind>>>()
const hold = async (device: FaultyDevice, name: string) => {
  holders.set(device, await bind(await connectSdk(device.on), name))
}
const letGo = (device: FaultyDevice) => holders.get(device)?.close()

/** Another device with a copy of the identity. */
interface Copy {
  readonly folder: string
  readonly agent: Agent
  start(): Promise<void>
}
const copies = new WeakMap<FaultyDevice, Copy>()

async function startCopy({ on }: FaultyDevice): Promise<Copy> {
  const folder = temporaryFolder()
  cpSync(join(on.folder, 'device-id'), join(folder, 'device-id'))
  writeFileSync(join(folder, 'default-policy.json'), '{}')
  const link = { ...FAST_TIMINGS.link, duplicateRetryMs: 1_000 }
  const options = { folder, timings: { ...FAST_TIMINGS, link } }
  let agent = on.another(options)
  await agent.start()
  return {
    folder,
    get agent() {
      return agent
    },
    start: () => {
      agent = on.another(options)
      return agent.start()
    },
  }
}

const STOP_ONE =
  /^Stop the agent on one of the two devices: after a move, on the old device\. To keep both, run device-agent identity reset --yes on the copy\.$/

const WITHOUT_TCP = ['bind:*.site.test']
const WITH_TCP = [...WITHOUT_TCP, 'bind:127.0.0.1:*']
const ALLOW_ADDRESS =
  /^Use a name .* Or allow this address\. Run device-agent gateway invite --name NAME --allow '127\.0\.0\.1:\*' on the gateway and device-agent join on this device\. NAME is the name of this device\. The new invitation replaces all rules: /
const EXTEND_ACL =
  /^Use a name that the ACL rules of the authtoken allow\. Or add a rule in the console of the gateway\.$/

faultTable('a decision of the gateway', {
  'the ACL of the authtoken does not allow the name': {
    settings: (device) => changeAcl(device, ['bind:*.other.test']),
    headline: /^The tunnel does not work\. The gateway does not allow a\.site\.test\.$/,
    check: 'tunnel a.site.test',
    detail: /The ACL rules of the authtoken \S+ do not allow a\.site\.test/,
    remedy: EXTEND_ACL,
    mend: (device) => changeAcl(device, ['bind:*.site.test']),
  },
  'the ACL of the authtoken does not allow TCP addresses': {
    gateway: { tcpListen: somePorts() },
    settings: (device) => changeAcl(device, WITH_TCP),
    cause: async (device) => {
      const forwardsTo = `localhost:${await serveHello()}`
      await device.agent.create({ protocol: 'tcp', domain: '', forwardsTo, policy: null })
      await changeAcl(device, WITHOUT_TCP)
    },
    headline: /^1 of 2 tunnels work\. The gateway does not allow the tunnel to localhost:\d+\.$/,
    check: /^tunnel /,
    detail:
      /The authtoken has no ACL rule for a TCP address\. The rule bind:127\.0\.0\.1:\* allows every address\.$/,
    remedy: ALLOW_ADDRESS,
    mend: async (device) => {
      await changeAcl(device, WITH_TCP)
      const { agent } = device
      await eventually(() => expect(device.status.verdict).toBe('All 2 tunnels work.'))
      const tcp = agent.list().find(({ spec }) => spec.protocol === 'tcp')
      await agent.remove(tcp?.id ?? '')
    },
  },
  'the domain is reserved for another account': {
    settings: async (device) => {
      const { issuer, registrar } = accountOf(device)
      const { id: ownerId } = await issuer.createBotUser({ name: 'other' })
      await registrar.reserve({ domain: 'a.site.test', ownerId })
    },
    headline: /^The tunnel does not work\. The gateway does not allow a\.site\.test\.$/,
    check: 'tunnel a.site.test',
    detail: /a\.site\.test is not reserved for/,
    remedy: /^Reserve the domain for this account, or use a reserved domain\.$/,
    mend: async (device) => {
      const { registrar, domains } = accountOf(device)
      const reserved = domains.find('a.site.test')
      if (reserved) await registrar.release(reserved)
    },
  },
  'another device of the account has the name': {
    settings: (device) => hold(device, 'a.site.test'),
    headline: /^The tunnel does not work\. a\.site\.test is in use elsewhere\.$/,
    check: 'tunnel a.site.test',
    detail: /already online/,
    remedy: /^Close the domain on the other device, or use another domain\.$/,
    mend: letGo,
  },
  'another device has the name of the agent API': {
    agent: { own: { domain: 'agent.site.test', socketPath: join('/tmp', 'no-api.sock') } },
    settings: (device) => hold(device, 'agent.site.test'),
    headline: /^The tunnel works\. The agent API is not online at agent\.site\.test\.$/,
    check: 'own domain agent.site.test',
    detail: /already online/,
    remedy: /^Close the domain on the other device, or use another domain\.$/,
  },
  'a copy of the device is online': {
    cause: async (device) => {
      copies.set(device, await startCopy(device))
    },
    headline: /^The tunnel works\. A second device has the identity of this device\.$/,
    check: 'status',
    detail: /^A second device has the identity of this device: 127\.0\.0\.1\.$/,
    remedy: STOP_ONE,
    mend: async (device) => {
      const copy = copies.get(device)
      await copy?.agent.stop()
      resetDeviceId(copy?.folder ?? '')
      await copy?.start()
    },
  },
  'the device is a copy': {
    settings: async (device) => {
      resetDeviceId(device.on.folder)
      await startCopy(device)
    },
    headline: /^The tunnel does not work\. Another device has the same identity\.$/,
    check: 'link',
    detail:
      /is already connected from 127\.0\.0\.1, by another process with the same data directory or a copy\.?$/,
    remedy: STOP_ONE,
    mend: async (device) => {
      resetDeviceId(device.on.folder)
      await device.start()
    },
  },
  'the quota of the account is reached': {
    settings: (device) => changeQuota(device, 0),
    headline: /^The tunnel does not work\. A limit of the account is reached\.$/,
    check: 'tunnel a.site.test',
    detail: /has reached its quota of .*ask the gateway's owner to raise the quota/,
    remedy: /^Close other sessions or tunnels of the account, or raise the limit of the account\.$/,
    mend: (device) => changeQuota(device, null),
  },
  'the agent is too old': {
    ...clientsBelow({ name: 'device-agent', version: '2.0' }),
    ...TOO_OLD,
    detail: /device-agent 1\.2\.3 is too old for this gateway\. Update it to 2\.0 or newer/,
    mend: (device) =>
      device.start(
        {},
        { connector: new NgrokConnector({ version: '2.0.0', log: captureLog().log }) },
      ),
  },
  'the agent is newer than the gateway': {
    agent: { connector: new NgrokConnector({ version: '99.0.0', log: captureLog().log }) },
    headline: /^The tunnel works\.$/,
    check: 'link',
    detail: /^up/,
  },
  'the SDK of the agent is too old': {
    ...clientsBelow({ name: 'ngrok-javascript', version: '99' }),
    ...TOO_OLD,
    detail: /ngrok-javascript \S+ is too old for this gateway\. Update it to 99 or newer/,
  },
})
