import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import { readIdentity } from '../../../src/gateway/peers/peer-identity.ts'
import { type AdmissionOptions, admit } from '../../../src/gateway/site/admission.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { createCluster, createMaterial, PORTS } from '../../helpers/cluster.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

/** A gateway with a folder of its own, and a token in a file if there is one. */
function newcomer(material: AdmissionOptions['material'], token?: string) {
  const folder = temporaryFolder()
  const joinTokenPath = token === undefined ? undefined : join(folder, 'join-token')
  if (joinTokenPath !== undefined) writeFileSync(joinTokenPath, `${token}\n`)
  const { log } = captureLog()
  return { folder, material, ports: PORTS, joinTokenPath, log, clock: systemClock }
}

it('lets the first one in by itself, and any other one with a token alone', async () => {
  const first = newcomer(createMaterial())
  const identity = await admit(first)
  expect(readIdentity(first.folder)).toEqual(identity)
  await expect(admit(newcomer(first.material))).rejects.toThrow('has gateways already: make one')

  const { material, makeToken } = await createCluster()
  const second = newcomer(material, (await makeToken()).reveal())
  expect(await admit(second)).toEqual(readIdentity(second.folder))
})

it('says what is wrong with a token, and where it stands', async () => {
  const [{ material }, other] = [await createCluster(), await createCluster()]
  const foreign = newcomer(material, (await other.makeToken()).reveal())
  await expect(admit(foreign)).rejects.toThrow(
    `${foreign.joinTokenPath} is for another site than that of GATEWAY_DATABASE_URL: make one`,
  )
  const none = newcomer(material, 'nothing')
  await expect(admit(none)).rejects.toThrow(`${none.joinTokenPath} holds no join token: make one`)
  const lost = { ...none, joinTokenPath: join(none.folder, 'lost') }
  await expect(admit(lost)).rejects.toThrow(`${lost.joinTokenPath} cannot be read: ENOENT.`)
  for (const { folder } of [foreign, none]) expect(readIdentity(folder)).toBeUndefined()
})
