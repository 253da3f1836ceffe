import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { Site } from '../helpers/site.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'
import {
  type Answers,
  answersOf,
  type Call,
  RELEASES,
  releasedVersions,
  SAMPLE_HOST,
} from './releases.ts'

const versions = readdirSync(RELEASES)

it('keeps data of each released version', () => {
  // After a release: npx tsx test/upgrade/release-data.ts COMMIT
  expect(versions.toSorted()).toEqual(releasedVersions().toSorted())
})

describe.each(versions)('data folders of version %s', (version) => {
  it('have every record and serve every name in this version', async () => {
    const folder = temporaryFolder()
    const kept = join(RELEASES, version)
    execFileSync('tar', ['-xzf', join(kept, 'data.tar.gz'), '--no-same-owner', '-C', folder])
    const site = await Site.start(folder, { GATEWAY_OUTBOUND_ALLOW: '127.0.0.1:9' })
    onTestFinished(() => site.stop())
    await expect.poll(async () => (await site.visit(SAMPLE_HOST)).text).toBe('from the device')
    expect((await site.visit('www.shop.test')).text).toBe('from the cloud')
    const before: Answers = JSON.parse(readFileSync(join(kept, 'answers.json'), 'utf8'))
    const now = await answersOf({
      gateway: read((method, path) => site.manage(method, path)),
      agent: read((method, path) => site.call(method, path)),
    })
    expect(now).toMatchObject(before)
    const logs = `${site.gateway.stderr}${site.agent.stderr}`
    expect(logs).not.toMatch(/damaged|"level":(50|60)/)
  })
})

function read(send: (method: string, path: string) => Promise<Response>): Call {
  return async (method, path) => (await send(method, path)).json()
}
