import verifolio
from digits import images, labels, model

result = verifolio.robustness(model, images, labels, epsilon=0.04, mean=0.3, std=0.37)
print(result)
result.save("digits-result")
