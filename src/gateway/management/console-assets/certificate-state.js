import { ask } from './api.js'
import { badge } from './card.js'
import { element, fill } from './element.js'
import { formatDistance } from './format.js'

const CHECK_MS = 2_000

/** What is said about the certificate, kept up to date while it is being made. */
export function certificateState({ id, certificate_management_status: status }) {
  const badgePlace = element('span', {})
  const sentence = element('span', {})
  show(status)
  return { badge: badgePlace, sentence, follow }

  function show(now) {
    fill(badgePlace, certificateBadge(now))
    fill(sentence, certificateSentence(now))
  }

  function follow(card) {
    if (isUnderWay(status)) setTimeout(look, CHECK_MS, card)
  }

  async function look(card) {
    if (!card.isConnected) return
    try {
      const now = await ask('GET', `api/reserved_domains/${id}`, { isBackground: true })
      show(now.certificate_management_status)
      if (!isUnderWay(now.certificate_management_status)) return
    } catch {
      // Whatever it is, the next thing that a person does here will say it.
    }
    setTimeout(look, CHECK_MS, card)
  }
}

function isUnderWay({ provisioning_job: job }) {
  return job !== null && job.error_code === null
}

function certificateBadge({ provisioning_job: job }) {
  if (!job) return badge('Certificate ready', 'good')
  return job.error_code
    ? badge('Certificate failed', 'bad')
    : badge('Certificate on its way', 'wait')
}

function certificateSentence({ renews_at, provisioning_job: job }) {
  if (!job) return renews_at ? `Renews ${formatDistance(renews_at)}` : 'Not issued yet'
  const retry = job.retries_at ? ` Tried again ${formatDistance(job.retries_at)}.` : ''
  return job.error_code ? `${job.msg} (${job.error_code})${retry}` : job.msg
}
